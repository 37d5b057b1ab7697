//! See `rejoin_fuzz::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::session::run(data));
