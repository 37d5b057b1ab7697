//! See `rejoin_fuzz::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::http::run(data));
