# syntax=docker/dockerfile:1
# outboxd without the demo, as a user without rights. The version of Rust is that of rust-toolchain.toml.

FROM rust:1.95.0-bookworm AS build
WORKDIR /build
# what the binary is made of, and nothing else: changes of tests and documents do not build it anew
COPY Cargo.toml Cargo.lock ./
COPY src src
# the caches outlive a build that failed; the binary has to be taken out of them
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --no-default-features \
    && cp target/release/outboxd /usr/local/bin/outboxd \
    && objcopy --strip-debug /usr/local/bin/outboxd

FROM debian:bookworm-slim
# certificate authorities for sslmode=verify-full and SASL_SSL, curl for the health check
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin outboxd
COPY --from=build /usr/local/bin/outboxd /usr/local/bin/outboxd
USER 10001
# inside the container's own network, where 127.0.0.1 would be reached by nobody
ENV OUTBOXD_HTTP_LISTEN=0.0.0.0:9464
EXPOSE 9464
# ready means: publishes or stands by. It goes on by itself when the servers are back, so do not restart it for this.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["curl", "--fail", "--silent", "--output", "/dev/null", "http://127.0.0.1:9464/readyz"]
ENTRYPOINT ["outboxd"]
CMD ["run"]
