//! What is written into the documentation.

use std::path::Path;

use rejoin_bench::Failure;

const BEGIN: &str = "<!-- load -->\n";
const END: &str = "<!-- end of load -->\n";
const CHART: &str = "performance.svg";

/// Puts the text between the marks of `docs/performance.md`, and the chart beside that.
///
/// # Errors
/// If a file cannot be read or written, or has no such marks.
pub(crate) fn write(text: &str, chart: &str) -> Result<(), Failure> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let file = docs.join("performance.md");
    let page = std::fs::read_to_string(&file)?;
    let page = between(&page, &format!("![Chart of the rates below]({CHART})\n\n{text}"))?;
    std::fs::write(docs.join(CHART), chart)?;
    Ok(std::fs::write(file, page)?)
}

fn between(page: &str, text: &str) -> Result<String, Failure> {
    let missing = || format!("docs/performance.md lacks {BEGIN:?} or {END:?}");
    let (head, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (_, tail) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{head}{BEGIN}{text}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_written_anew() {
        let page = format!("a\n{BEGIN}old\n{END}z\n");
        assert_eq!(between(&page, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}z\n"));
        assert!(between("a\n", "new\n").is_err());
    }
}
