//! JUnit XML, as build servers read it.

use super::{Report, escaped};
use crate::hazard::Verdict;

pub(super) fn write(report: &Report) -> String {
    let is_skipped =
        |verdict: Verdict| matches!(verdict, Verdict::NotApplicable | Verdict::CouldNotTell);
    let skipped = report.findings.iter().filter(|finding| is_skipped(finding.verdict)).count();
    let target = escaped(&report.target);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n\
         <testsuite name=\"rejoin probe {target}\" tests=\"{}\" \
         failures=\"{}\" skipped=\"{skipped}\">\n",
        report.findings.len(),
        report.hazards(),
    );
    for finding in &report.findings {
        let (id, seen) = (escaped(finding.about.id), escaped(&finding.seen));
        let seconds = finding.took_ms / 1_000;
        let millis = finding.took_ms % 1_000;
        xml.push_str(&format!(
            "<testcase classname=\"rejoin.probe\" name=\"{id}\" time=\"{seconds}.{millis:03}\">"
        ));
        if finding.verdict.is_bad() {
            let (kind, why) = (escaped(&finding.verdict.to_string()), escaped(finding.about.why));
            let lines: Vec<String> = finding.transcript.iter().map(ToString::to_string).collect();
            let lines = escaped(&lines.join("\n"));
            xml.push_str(&format!(
                "<failure type=\"{kind}\" message=\"{seen}\">{why}\n\n{lines}</failure>"
            ));
        } else if is_skipped(finding.verdict) {
            xml.push_str(&format!("<skipped message=\"{}: {seen}\"/>", finding.verdict));
        } else {
            xml.push_str(&format!("<system-out>{seen}</system-out>"));
        }
        xml.push_str("</testcase>\n");
    }
    xml.push_str("</testsuite>\n</testsuites>\n");
    xml
}
