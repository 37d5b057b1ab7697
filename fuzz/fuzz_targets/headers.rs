//! See `rejoin_fuzz::headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::headers::run(data));
