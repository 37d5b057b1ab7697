//! See `rejoin_fuzz::sqlite`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::sqlite::run(data));
