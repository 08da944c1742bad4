"""The report of a comparison."""
import os
import statistics


def report(runs, rows, reader, broker, server):
    """The Markdown tables: medians over the rounds, and each rate as a ratio to `reader`'s in its own round.

    `broker` is the run of a bare producer, and `server` says which process of the database is meant.
    """
    out = []
    drains = [r for r in runs if r["what"] == "drain"]
    yardstick = {r["round"]: r["rows_per_s"] for r in drains if r["relay"] == reader}
    if drains:
        out += [f"### Draining {rows:,} rows", "",
                f"| relay | rows/s | ratio to {reader} | first record after s | CPU s per million rows | {server} CPU s"
                " per million rows | peak RSS MiB | missing / repeats / out of order |",
                "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for relay in dict.fromkeys(r["relay"] for r in drains):
        mine = [r for r in drains if r["relay"] == relay]
        ratios = sorted(r["rows_per_s"] / yardstick[r["round"]] for r in mine)

        def mid(key, scale=1.0, mine=mine):
            known = [r[key] * scale for r in mine if r.get(key) is not None]
            return statistics.median(known) if known else None

        first, sender, memory = mid("startup_s"), mid("server_cpu_s", 1e6 / rows), mid("peak_rss_mib")
        checks = " / ".join(str(sum(r[k] for r in mine)) for k in ("missing", "repeats", "out_of_order")
                            ) if "missing" in mine[0] else ""
        out.append(f"| {relay} | {mid('rows_per_s'):,.0f} | {statistics.median(ratios):.2f}"
                   f" ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {'' if first is None else f'{first:.2f}'} |"
                   f" {mid('cpu_s_per_million'):.1f} | {'' if sender is None else f'{sender:.1f}'} |"
                   f" {'' if memory is None else f'{memory:.0f}'} | {checks} |")
    live_runs = [r for r in runs if r["what"] == "latency"]
    if live_runs:
        floors = [r["sent_to_arrival_ms"] for r in live_runs if r["relay"] in (reader, broker)]
        floor = {q: sum(f[q] for f in floors) for q in ("p50", "p99")} if len(floors) == 2 else None
        out += ["", f"### Latency at {live_runs[0]['rate']:,.0f} events/s", "",
                "| relay | commit to arrival p50 ms | p99 ms | max ms | insert to arrival p50 ms | p99 ms |"
                f" their ratio to {reader} + producer alone | commit itself p50, p99 ms | CPU s | peak RSS MiB |"
                " missing / repeats |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in live_runs:
        ms, sent, commit = r["committed_to_arrival_ms"], r["sent_to_arrival_ms"], r["commit_ms"]
        ratio = "; ".join(f"{sent[q] / floor[q]:.2f}" for q in floor) if floor else ""
        out.append(f"| {r['relay']} | {ms['p50']} | {ms['p99']} | {ms['max']} | {sent['p50']} | {sent['p99']} | {ratio} |"
                   f" {commit['p50']}; {commit['p99']} | {r.get('cpu_s', '')} | {r.get('peak_rss_mib', '')} |"
                   f" {r['missing']} / {r['repeats']} |")
    loads = [r["load"] for r in runs]
    out += ["", f"{os.cpu_count()} CPUs; load average {min(loads):.1f} to {max(loads):.1f} during the runs."]
    return "\n".join(out) + "\n"
