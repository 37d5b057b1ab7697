//! A configuration file as values with their places, whether it was TOML or JSON.

use std::collections::BTreeSet;

use clap::ValueEnum;

use super::expand::Text;
use crate::args::AuthSource;

/// A value and where it begins.
#[derive(Debug)]
pub(super) struct Node {
    /// Offset in the file, in bytes.
    pub(super) at: usize,
    pub(super) value: Value,
}

/// What a value can be.
#[derive(Debug)]
pub(super) enum Value {
    Text(Text),
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

impl From<Fault> for Vec<Fault> {
    fn from(fault: Fault) -> Self {
        vec![fault]
    }
}

impl Fault {
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into() }
    }
}

impl Field {
    /// Adds the variables of the environment that are named in here.
    pub(super) fn add_variables(&self, names: &mut BTreeSet<String>) {
        self.node.add_variables(names);
        if let (Value::Text(text), "upstream_auth") = (&self.node.value, &self.name[..])
            && let Ok(Some(name)) = text.expanded.as_deref().map(|text| text.strip_prefix("env:"))
        {
            names.insert(name.to_owned());
        }
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
            Value::Text(text) => self.expanded(text),
            _ => Err(self.wanted("a string in quotes")),
        }
    }

    fn expanded<'a>(&self, text: &'a Text) -> Result<&'a str, Fault> {
        let expanded = text.expanded.as_deref();
        expanded.map_err(|problem| Fault::new(self.at, problem.clone()))
    }

    /// Adds the variables of the environment that are named in here.
    pub(super) fn add_variables(&self, names: &mut BTreeSet<String>) {
        match &self.value {
            Value::Text(text) => names.extend(text.variables.iter().cloned()),
            Value::List(nodes) => nodes.iter().for_each(|node| node.add_variables(names)),
            Value::Table(fields) => fields.iter().for_each(|field| field.add_variables(names)),
            Value::Number(_) | Value::Flag(_) | Value::Other(_) => {}
        }
    }

    /// A text that may have been written as a number.
    pub(super) fn word(&self) -> Result<&str, Fault> {
        match &self.value {
            Value::Text(text) => self.expanded(text),
            Value::Number(number) => Ok(number),
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
        read(self.text()?).map_err(|problem| self.fault(problem))
    }

    /// True if variables of the environment went into it.
    pub(super) fn is_expanded(&self) -> bool {
        matches!(&self.value, Value::Text(text) if !text.variables.is_empty())
    }

    /// What is wrong with this value. What variables hold may be a secret, and a reader may repeat
    /// it.
    pub(super) fn fault(&self, problem: impl Into<String>) -> Fault {
        match &self.value {
            Value::Text(text) if self.is_expanded() => {
                let names = text.variables.join(", ");
                let problem = "makes a value that cannot be used here, and that is not shown: \
                               see docs/configuration.md for what can stand here";
                Fault::new(self.at, format!("what the environment holds ({names}) {problem}"))
            }
            _ => Fault::new(self.at, problem),
        }
    }

    /// The source of a credential.
    pub(super) fn auth(&self) -> Result<AuthSource, Fault> {
        if let Value::Text(Text { expanded: Ok(text), variables }) = &self.value
            && text.starts_with("env:")
            && let Some(name) = variables.first()
        {
            let problem =
                format!("env: takes the name of a variable, never what it holds: write env:{name}");
            return Err(Fault::new(self.at, problem));
        }
        self.parsed(str::parse)
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
