//! One page: the table, and the wire of each finding. It loads nothing.

use super::{Finding, Report, escaped};
use crate::hazard::{About, Verdict};

const STYLE: &str = ":root{color-scheme:light dark}a{color:inherit}\
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;\
padding:0 1rem;color:#1a1a1a;background:#fff}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #ddd}\
td:first-child{white-space:nowrap}td{overflow-wrap:anywhere}\
@media(max-width:40rem){td:first-child{white-space:normal}}\
section{margin-top:3rem}h2 small{color:#666;font-weight:400;margin-left:.6rem}\
pre{overflow:auto;max-height:26rem;background:#f5f5f5;padding:.8rem;font-size:12px}\
.bad{color:#b00020;font-weight:600}.good{color:#1b6e2a}.dim{color:#666}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}pre{background:#222}\
td,th{border-color:#333}.bad{color:#ff7b88}.good{color:#7ed391}.dim,h2 small{color:#999}}";

pub(super) fn write(report: &Report) -> String {
    let (target, server) = (escaped(&report.target), escaped(&report.server));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>rejoin probe: {target}</title><style>{STYLE}</style></head><body>\n\
         <h1>rejoin probe</h1>\n<p>{target} ({server})<br>tool: {}<br>{}</p>\n",
        escaped(&report.subject.told()),
        escaped(&report.summary()),
    );
    if let Some(unjudged) = report.unjudged() {
        page.push_str(&format!("<p class=\"bad\">{}</p>\n", escaped(&unjudged)));
    }
    page.push_str(
        "<table><thead><tr><th scope=\"col\">hazard</th><th scope=\"col\">verdict</th>\
         <th scope=\"col\">seen</th></tr></thead><tbody>\n",
    );
    for finding in &report.findings {
        let (id, class) = (escaped(finding.about.id), class(finding.verdict));
        page.push_str(&format!(
            "<tr><td><a href=\"#{id}\">{id}</a></td><td class=\"{class}\">{}</td>\
             <td>{}</td></tr>\n",
            escaped(&finding.verdict.to_string()),
            escaped(&finding.seen),
        ));
    }
    page.push_str("</tbody></table>\n");
    for finding in &report.findings {
        page.push_str(&section(finding));
    }
    page.push_str("</body></html>\n");
    page
}

fn section(finding: &Finding) -> String {
    let About { id, title, done, why, fix } = finding.about;
    let lines: Vec<String> = finding.transcript.iter().map(ToString::to_string).collect();
    let open = if finding.verdict.is_bad() { " open" } else { "" };
    format!(
        "<section id=\"{}\"><h2>{}<small>{}</small></h2>\n<p class=\"{}\">{}: {}</p>\n\
         <p>The probe {}.</p>\n<p>Why it matters: {}</p>\n<p>What repairs it: {}.</p>\n\
         <details{open}><summary>the wire</summary><pre>{}</pre></details></section>\n",
        escaped(id),
        escaped(title),
        escaped(id),
        class(finding.verdict),
        escaped(&finding.verdict.to_string()),
        escaped(&finding.seen),
        escaped(done),
        escaped(why),
        escaped(fix),
        escaped(&lines.join("\n")),
    )
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Safe => "good",
        Verdict::Hazard | Verdict::Violation(_) => "bad",
        Verdict::NotApplicable | Verdict::CouldNotTell => "dim",
    }
}
