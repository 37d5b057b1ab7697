//! A configuration file as values with their places, whether it was TOML or JSON.

use clap::ValueEnum;

/// A value and where it begins.
#[derive(Debug)]
pub(super) struct Node {
    /// Offset in the file, in bytes.
    pub(super) at: usize,
    pub(super) value: Value,
}

/// What a value can be. Texts are expanded.
#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    /// As it was written, in decimal.
    Number(String),
    Flag(bool),
    List(Vec<Node>),
    /// In the order of the file.
    Table(Vec<Field>),
    /// What no setting is, by its name.
    Other(&'static str),
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// Where the key begins: offset in the file, in bytes.
    pub(super) at: usize,
    pub(super) node: Node,
}

/// What is wrong at a place of the file. Never tells a value: it may be a secret.
#[derive(Debug)]
pub(super) struct Fault {
    /// Offset in the file, in bytes.
    pub(super) at: usize,
    /// What is wrong, and what to do.
    pub(super) problem: String,
}

impl Fault {
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into() }
    }
}

impl Node {
    fn wanted(&self, expected: &str) -> Fault {
        let found = match &self.value {
            Value::Text(_) => "a string",
            Value::Number(_) => "a number",
            Value::Flag(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(name) => name,
        };
        Fault::new(self.at, format!("expected {expected}, found {found}"))
    }

    /// A text.
    pub(super) fn text(&self) -> Result<&str, Fault> {
        match &self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wanted("a string in quotes")),
        }
    }

    /// A text that may have been written as a number.
    pub(super) fn word(&self) -> Result<&str, Fault> {
        match &self.value {
            Value::Text(word) | Value::Number(word) => Ok(word),
            _ => Err(self.wanted("a string or a number")),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, Fault> {
        match self.value {
            Value::Flag(flag) => Ok(flag),
            _ => Err(self.wanted("true or false, without quotes")),
        }
    }

    pub(super) fn list(&self) -> Result<&[Self], Fault> {
        match &self.value {
            Value::List(nodes) => Ok(nodes),
            _ => Err(self.wanted("a list, such as [\"one\", \"two\"]")),
        }
    }

    pub(super) fn table(&self) -> Result<&[Field], Fault> {
        match &self.value {
            Value::Table(fields) => Ok(fields),
            _ => Err(self.wanted("a table of keys and values")),
        }
    }

    /// A text, read by the reader of a command-line option.
    pub(super) fn parsed<T>(&self, read: impl Fn(&str) -> Result<T, String>) -> Result<T, Fault> {
        read(self.text()?).map_err(|problem| Fault::new(self.at, problem))
    }

    /// A list of texts, each read by the reader of a command-line option.
    pub(super) fn each<T>(
        &self,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Fault> {
        self.list()?.iter().map(|node| node.parsed(&read)).collect()
    }

    /// One of the values of a command-line option.
    pub(super) fn choice<T: ValueEnum>(&self) -> Result<T, Fault> {
        T::from_str(self.word()?, false).map_err(|_| {
            let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let names: Vec<_> = values.map(|value| format!("{:?}", value.get_name())).collect();
            Fault::new(self.at, format!("expected one of {}", names.join(", ")))
        })
    }

    /// A table of texts.
    pub(super) fn texts(&self) -> Result<Vec<(&Field, &str)>, Fault> {
        self.table()?.iter().map(|field| Ok((field, field.node.text()?))).collect()
    }
}
