//! Any text as a set of GTIDs: what is read is written in one form, which is read again; sets obey the laws of sets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outboxd::gtid::{Gtids, MysqlGtids};

fuzz_target!(|text: &str| {
    if let Ok(gtids) = text.parse::<Gtids>()
        && !gtids.is_empty()
    {
        let again: Gtids = gtids.to_string().parse().expect("what is written can be read");
        assert_eq!(again, gtids);
    }
    let (one, other) = text.split_once('|').unwrap_or((text, ""));
    let (Ok(one), Ok(other)) = (one.parse::<MysqlGtids>(), other.parse::<MysqlGtids>()) else { return };
    let rest = one.without(&other);
    assert!(rest.is_within(&one));
    assert!(rest.without(&other) == rest && rest.without(&one).is_empty());
    assert_eq!(one.is_within(&other), rest.is_empty());
    for (source, intervals) in rest.sources() {
        for interval in intervals {
            for number in [interval.first, interval.last] {
                assert!(one.contains(source, number) && !other.contains(source, number));
            }
        }
    }
});
