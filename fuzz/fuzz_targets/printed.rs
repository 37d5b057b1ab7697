//! See `rejoin_fuzz::printed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::printed::run(data));
