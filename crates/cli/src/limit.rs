//! `--limit NAME=VALUE`: any field of [`Limits`] by its own name, so that no limit needs a flag.
//! A field of a group has the group's name and a dot before its own.

use std::str::FromStr;

use rejoin_core::limits::Limits;
use serde_json::{Map, Value};

use crate::nearest::nearest;

/// An argument of `--limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LimitArgument {
    /// Asks for [`table`].
    Help,
    /// Sets a limit.
    Set(LimitSetting),
}

/// One `name=value`, its name known to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitSetting {
    name: String,
    value: Value,
    /// Where in a file it was set; `None`: by `--limit`.
    place: Option<String>,
}

/// Why a limit cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitSettingError {
    /// Not of the form `name=value`.
    #[error("expected NAME=VALUE, for example hold_max_ms=20000, or `help` for all names")]
    NoValue,
    /// No such limit.
    #[error("there is no limit named {name:?}{}; `--limit help` lists the limits", meant(nearest))]
    UnknownName {
        /// The name as given.
        name: String,
        /// The name that is nearest, if one is near.
        nearest: Option<String>,
    },
    /// The value is no number, or does not fit.
    #[error(
        "limit {name}: {value:?} is {}{}{}: write it without a unit, such as {name}={default}, its \
         default",
        what_is_wrong(value),
        of_unit(name),
        or_never(name)
    )]
    BadValue {
        /// The limit.
        name: String,
        /// The value as given.
        value: String,
        /// The limit's default.
        default: String,
    },
}

/// The largest value of any limit: times are added to times, so there must be room above it.
pub(crate) const VALUE_MAX: u64 = (1 << 53) - 1;

/// The one limit that may be switched off.
const CAN_BE_NEVER: &str = "owed_grace_ms";

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(": {name:?} may be meant")).unwrap_or_default()
}

fn is_digits(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_digit())
}

fn what_is_wrong(value: &str) -> &'static str {
    if is_digits(value) { "too large a number" } else { "not a whole number" }
}

fn or_never(name: &str) -> &'static str {
    if name == CAN_BE_NEVER { ", and not `never`" } else { "" }
}

/// What a limit counts, as its name says.
fn unit(name: &str) -> &'static str {
    if name.ends_with("_ms") {
        "milliseconds"
    } else if name.split('_').any(|word| word == "bytes") {
        "bytes"
    } else {
        "number"
    }
}

fn of_unit(name: &str) -> String {
    match unit(name) {
        "number" => String::new(),
        unit => format!(" of {unit}"),
    }
}

impl LimitArgument {
    /// What it sets.
    pub(crate) fn set(&self) -> Option<LimitSetting> {
        match self {
            Self::Help => None,
            Self::Set(setting) => Some(setting.clone()),
        }
    }
}

impl LimitSetting {
    /// The limit's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same, set at this place of a file.
    pub(crate) fn set_at(self, place: String) -> Self {
        Self { place: Some(place), ..self }
    }

    /// As it was written, after `--limit` or in a file.
    pub(crate) fn shown(&self) -> String {
        let (name, value) = (&self.name, shown(&self.value));
        match &self.place {
            Some(place) => format!("{place}: {name} = {value}"),
            None => format!("--limit {name}={value}"),
        }
    }
}

fn shown(value: &Value) -> String {
    if value.is_null() { "never".to_owned() } else { value.to_string() }
}

/// Every limit on a line of its own: name and default, unit, and what it is.
pub(crate) fn table() -> String {
    let mut fields = fields_of(&Limits::default());
    let mut lines = String::new();
    for name in names_of(&fields) {
        let default = field(&mut fields, &name).map(|value| shown(value)).unwrap_or_default();
        let setting = format!("{name}={default}");
        let what = Limits::description(&name).unwrap_or_default();
        lines.push_str(&format!("{setting:<48} {:<12}  {what}\n", unit(&name)));
    }
    lines
}

impl FromStr for LimitArgument {
    type Err = LimitSettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "help" { Ok(Self::Help) } else { text.parse().map(Self::Set) }
    }
}

impl FromStr for LimitSetting {
    type Err = LimitSettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, given) = text.split_once('=').ok_or(LimitSettingError::NoValue)?;
        let mut fields = fields_of(&Limits::default());
        if field(&mut fields, name).is_none() {
            let (name, nearest) = (name.to_owned(), nearest_name(name));
            return Err(LimitSettingError::UnknownName { name, nearest });
        }
        let value = match given {
            "never" if name == CAN_BE_NEVER => Value::Null,
            digits => match digits.parse::<u64>() {
                Ok(number) if number <= VALUE_MAX => number.into(),
                _ => return Err(bad(name, given)),
            },
        };
        let setting = Self { name: name.to_owned(), value, place: None };
        // The field may be narrower than 64 bits: find out now, beside the argument at fault.
        set(fields, std::slice::from_ref(&setting)).map_err(|_| bad(name, given))?;
        Ok(setting)
    }
}

fn bad(name: &str, value: &str) -> LimitSettingError {
    let mut fields = fields_of(&Limits::default());
    let default = field(&mut fields, name).map(|value| shown(value)).unwrap_or_default();
    LimitSettingError::BadValue { name: name.to_owned(), value: value.to_owned(), default }
}

/// What the value of a limit has to be, if this one cannot be it.
pub(crate) fn form(name: &str, given: &str) -> String {
    let wanted = if is_digits(given) { "a smaller number" } else { "a whole number" };
    let mut fields = fields_of(&Limits::default());
    let default = field(&mut fields, name).map(|value| shown(value)).unwrap_or_default();
    let (unit, never) = (of_unit(name), or_never(name).replace("and not", "or"));
    format!("expected {wanted}{unit}{never}, such as {default}, the default")
}

/// The limits with the settings applied in their order.
///
/// # Errors
/// When the settings do not make a set of limits; each has been tried alone, so never in practice.
pub(crate) fn apply(limits: &Limits, settings: &[LimitSetting]) -> serde_json::Result<Limits> {
    set(fields_of(limits), settings)
}

fn set(mut fields: Map<String, Value>, settings: &[LimitSetting]) -> serde_json::Result<Limits> {
    for setting in settings {
        if let Some(value) = field(&mut fields, &setting.name) {
            value.clone_from(&setting.value);
        }
    }
    serde_json::from_value(Value::Object(fields))
}

/// The value of a field by its name; a group is none.
fn field<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Value> {
    let value = match name.split_once('.') {
        Some((group, name)) => fields.get_mut(group)?.get_mut(name)?,
        None => fields.get_mut(name)?,
    };
    (!value.is_object()).then_some(value)
}

/// The name of every limit.
pub(crate) fn names() -> Vec<String> {
    names_of(&fields_of(&Limits::default()))
}

/// The limit whose name is nearest to this one, if one is near.
pub(crate) fn nearest_name(name: &str) -> Option<String> {
    let names = names();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    nearest(name, &known).map(str::to_owned)
}

/// The name of every field.
fn names_of(fields: &Map<String, Value>) -> Vec<String> {
    let names = fields.iter().flat_map(|(name, value)| match value {
        Value::Object(group) => group.keys().map(|inner| format!("{name}.{inner}")).collect(),
        _ => vec![name.clone()],
    });
    names.collect()
}

fn fields_of(limits: &Limits) -> Map<String, Value> {
    match serde_json::to_value(limits) {
        Ok(Value::Object(fields)) => fields,
        // A struct of numbers serialises to an object; an empty map would refuse every name.
        Ok(_) | Err(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(settings: &[&str]) -> Result<Limits, LimitSettingError> {
        let settings: Result<Vec<_>, _> = settings.iter().map(|text| text.parse()).collect();
        Ok(apply(&Limits::default(), &settings?).unwrap())
    }

    #[test]
    fn a_setting_changes_its_own_limit_only() {
        let limits = applied(&["hold_max_ms=20000"]).unwrap();
        let mut expected = Limits::default();
        expected.hold_max_ms = 20_000;
        assert_eq!(limits, expected);
    }

    #[test]
    fn a_limit_of_a_group_is_named_with_a_dot() {
        let limits = applied(&["upstream.connect_max_ms=7", "upstream.events_max=9"]).unwrap();
        let mut expected = Limits::default();
        (expected.upstream.connect_max_ms, expected.upstream.events_max) = (7, 9);
        assert_eq!(limits, expected);
        let given = "upstream.resume_attempts_max=4294967296";
        assert_eq!(applied(&[given]), Err(bad("upstream.resume_attempts_max", "4294967296")));
        for given in ["upstream=1", "upstream.=1", "upstream.none=1", "retry_ms.x=1"] {
            let refusal = applied(&[given]).unwrap_err();
            assert!(matches!(refusal, LimitSettingError::UnknownName { .. }), "{given}");
            assert!(refusal.to_string().contains("`--limit help`"), "{refusal}");
        }
    }

    #[test]
    fn the_last_of_two_settings_wins() {
        assert_eq!(applied(&["retry_ms=1", "retry_ms=2"]).unwrap().retry_ms, 2);
    }

    #[test]
    fn only_the_grace_can_be_never() {
        assert_eq!(applied(&["owed_grace_ms=never"]).unwrap().owed_grace_ms, None);
        assert_eq!(applied(&["hold_max_ms=never"]), Err(bad("hold_max_ms", "never")));
    }

    #[test]
    fn a_value_too_large_for_its_limit_is_refused() {
        let given = "tcp_keepalive_probes=4294967296";
        assert_eq!(applied(&[given]), Err(bad("tcp_keepalive_probes", "4294967296")));
    }

    #[test]
    fn a_value_that_could_overflow_a_sum_is_refused() {
        assert_eq!(applied(&["retry_ms=9007199254740991"]).unwrap().retry_ms, VALUE_MAX);
        for given in ["9007199254740992", "18446744073709551615"] {
            assert_eq!(applied(&[&format!("retry_ms={given}")]), Err(bad("retry_ms", given)));
        }
    }

    #[test]
    fn a_bad_value_is_told_with_unit_and_form() {
        let told = |given: &str| given.parse::<LimitSetting>().unwrap_err().to_string();
        let expected = "limit hold_max_ms: \"10s\" is not a whole number of milliseconds\
            : write it without a unit, such as hold_max_ms=10000, its default";
        assert_eq!(told("hold_max_ms=10s"), expected);
        assert!(told("body_bytes_max=1M").contains("number of bytes:"));
        assert!(told("sessions_max=x").contains("is not a whole number:"));
        assert!(told("owed_grace_ms=8s").contains("milliseconds, and not `never`: write"));
        assert!(told("retry_ms=9007199254740992").contains("is too large a number of millis"));
    }

    #[test]
    fn a_mistyped_limit_is_told_with_the_nearest_and_not_with_all() {
        let told = |given: &str| given.parse::<LimitSetting>().unwrap_err().to_string();
        for (given, nearest) in [
            ("sesions_max=5", "sessions_max"),
            ("connect_max_ms=5", "upstream.connect_max_ms"),
            ("upstream.conect_max_ms=5", "upstream.connect_max_ms"),
            ("owed_grace=5", "owed_grace_ms"),
        ] {
            let refusal = told(given);
            assert!(refusal.contains(&format!(": \"{nearest}\" may be meant; ")), "{refusal}");
            assert!(refusal.len() < 150, "{refusal}");
        }
        let expected = "there is no limit named \"banana\"; `--limit help` lists the limits";
        assert_eq!(told("banana=1"), expected);
    }

    #[test]
    fn the_table_has_every_limit_with_default_unit_and_meaning() {
        let table = table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), names().len());
        for line in &lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(words[0].parse::<LimitSetting>().is_ok(), "{line}");
            assert!(["milliseconds", "bytes", "number"].contains(&words[1]), "{line}");
            assert!(words.len() > 3, "{line}");
        }
        let find = |begin: &str| lines.iter().find(|line| line.starts_with(begin)).unwrap();
        let hold = find("hold_max_ms=10000 ");
        assert!(hold.ends_with("milliseconds  Longest time a POST is held before it is refused"));
        assert!(find("upstream.refusal_bytes_max=65536 ").contains(" bytes "));
    }

    #[test]
    fn negative_fractional_and_missing_values_are_refused() {
        assert_eq!(applied(&["retry_ms=-1"]), Err(bad("retry_ms", "-1")));
        assert_eq!(applied(&["retry_ms=1.5"]), Err(bad("retry_ms", "1.5")));
        assert_eq!(applied(&["retry_ms"]), Err(LimitSettingError::NoValue));
    }
}
