//! How the demo tells its story: 80 columns, a running count in the margin, colour on a terminal.

use std::io::{self, Write};
use std::time::Duration;

/// Widest line.
const COLUMNS: usize = 80;

/// Width of the margin with the count and of the column with the speaker.
const MARGIN: usize = 6;
const SPEAKER: usize = 9;

/// How much shorter pauses are with `--fast`.
const FAST_DIVISOR: u32 = 8;

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// What happens.
    Plain,
    /// The fault that is put in.
    Fault,
    /// What should not be.
    Bad,
    /// What should be.
    Good,
}

impl Tone {
    fn escape(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Fault => Some("33"),
            Self::Bad => Some("31;1"),
            Self::Good => Some("32;1"),
        }
    }
}

/// The teller. Every line is flushed: the story is live.
pub(super) struct Narration<W> {
    out: W,
    colour: bool,
    fast: bool,
    count: usize,
}

impl<W: Write> Narration<W> {
    pub(super) fn new(out: W, colour: bool, fast: bool) -> Self {
        Self { out, colour, fast, count: 0 }
    }

    /// Waits, so that a person can follow.
    pub(super) async fn pause(&self, time: Duration) {
        tokio::time::sleep(self.scaled(time)).await;
    }

    /// A time as it is with or without `--fast`.
    pub(super) fn scaled(&self, time: Duration) -> Duration {
        if self.fast { time / FAST_DIVISOR } else { time }
    }

    /// Sets the count in the margin.
    pub(super) fn set_count(&mut self, count: usize) {
        self.count = count;
    }

    /// The title of a failure.
    pub(super) fn title(&mut self, title: &str) -> io::Result<()> {
        let title = self.paint(Some("1"), title);
        write!(self.out, "\n{title}\n")?;
        self.out.flush()
    }

    /// Text across the whole width.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        for line in wrap(text, COLUMNS) {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    /// The heading of one half of a failure; the count starts again.
    pub(super) fn side(&mut self, name: &str) -> io::Result<()> {
        self.count = 0;
        let name = self.paint(Some("1"), name);
        write!(self.out, "\n  {name}\n{:>MARGIN$}\n", "runs")?;
        self.out.flush()
    }

    /// One thing that happens: the count so far, who, and what.
    pub(super) fn line(&mut self, speaker: &str, tone: Tone, text: &str) -> io::Result<()> {
        let mut margin = format!("{:>MARGIN$}", self.count);
        let mut who = speaker;
        for line in wrap(text, COLUMNS - MARGIN - SPEAKER - 3) {
            let margin_painted = self.paint(Some("2"), &margin);
            let line = self.paint(tone.escape(), &line);
            writeln!(self.out, "{margin_painted}  {who:SPEAKER$} {line}")?;
            margin = " ".repeat(MARGIN);
            who = "";
        }
        self.out.flush()
    }

    /// A row of the closing table.
    pub(super) fn row(&mut self, cells: [&str; 3], tones: [Tone; 2]) -> io::Result<()> {
        let [name, bare, guarded] = cells;
        let bare = self.paint(tones[0].escape(), &format!("{bare:<26}"));
        let guarded = self.paint(tones[1].escape(), guarded);
        writeln!(self.out, "  {name:<22}{bare}{guarded}")?;
        self.out.flush()
    }

    fn paint(&self, escape: Option<&str>, text: &str) -> String {
        match escape {
            Some(escape) if self.colour => format!("\x1b[{escape}m{text}\x1b[0m"),
            Some(_) | None => text.to_owned(),
        }
    }
}

/// Breaks text between words; a word longer than a line has its own. Control characters, which a
/// server's text may contain, never reach the terminal.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word: String = word.chars().filter(|character| !character.is_control()).collect();
        let last = lines.len() - 1;
        let (used, needed) = (lines[last].chars().count(), word.chars().count());
        if used == 0 {
            lines[last] = word;
        } else if used + 1 + needed <= columns {
            lines[last].push(' ');
            lines[last].push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(colour: bool, tell: impl Fn(&mut Narration<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        tell(&mut Narration::new(&mut out, colour, true));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let long = "word ".repeat(100);
        let text = told(false, |narration| {
            narration.set_count(123);
            narration.text(&long).unwrap();
            narration.line("server", Tone::Bad, &long).unwrap();
            narration.row(["x", "y", "z"], [Tone::Bad, Tone::Good]).unwrap();
        });
        assert!(text.lines().count() > 10);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn the_count_stands_in_the_margin_of_the_first_line_only() {
        let text = told(false, |narration| {
            narration.set_count(2);
            narration.line("app", Tone::Plain, &"word ".repeat(20)).unwrap();
        });
        assert!(text.starts_with("     2  app       word word"), "{text}");
        assert_eq!(text.matches("app").count(), 1);
        assert_eq!(text.matches('2').count(), 1);
    }

    #[test]
    fn without_colour_there_is_no_escape_and_with_it_every_one_is_closed() {
        let tell = |narration: &mut Narration<&mut Vec<u8>>| {
            narration.title("t").unwrap();
            narration.line("app", Tone::Bad, "x").unwrap();
        };
        assert!(!told(false, tell).contains('\x1b'));
        let text = told(true, tell);
        assert_eq!(text.matches("\x1b[").count(), 2 * text.matches("\x1b[0m").count());
        assert!(text.contains("\x1b[31;1mx\x1b[0m"), "{text:?}");
    }

    #[test]
    fn control_characters_of_a_server_do_not_reach_the_terminal() {
        let text = told(true, |narration| {
            narration.line("server", Tone::Plain, "a\x1b[2Jb\x07").unwrap();
        });
        assert!(text.contains("a[2Jb\n"), "{text:?}");
    }
}
