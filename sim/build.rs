//! Builds the library that is preloaded into each run (`src/world.c`).

use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-changed=src/world.c");
    let folder = std::env::var("OUT_DIR").map_err(|error| error.to_string())?;
    let object = PathBuf::from(folder).join("world.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&object).arg("src/world.c");
    match compiler.status() {
        Ok(status) if status.success() => {
            println!("cargo:rustc-env=REJOIN_SIM_WORLD={}", object.display());
            Ok(())
        }
        other => Err(format!("the C compiler `cc` did not build src/world.c: {other:?}")),
    }
}
