//! Takes settings out of the three places where they stand, and keeps what it finds wrong.

use serde_json::{Map, Value};

use super::findings::Findings;
use super::key::{Fallback, Key, Kind, Place};
use super::nearest::{Guess, guess};
use super::problem::{Fault, Problem, Reason, bounded};
use super::setting::{Setting, Source};
use super::table::{KEYS, key};
use super::value::Parsed;
use super::warning::Warning;
use crate::excerpt::Excerpt;

/// The three places, and what was found wrong in them so far.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    outer: Option<&'a Map<String, Value>>,
    extra: Option<&'a Map<String, Value>>,
    environment: Map<String, Value>,
    pub(super) problems: Findings<Problem>,
    pub(super) warnings: Findings<Warning>,
}

/// How a setting was given.
enum Given<T> {
    Absent,
    /// The problems are kept already.
    Wrong,
    Right(Setting<T>),
}

impl<'a> Reader<'a> {
    /// Finds out whether `value` is the engine's whole object or the plug-in's dictionary alone, and
    /// looks at the name of everything in it.
    pub(super) fn new(value: &'a Value, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let variables = KEYS.iter().filter(|key| key.place == Place::Environment);
        let mut reader = Self {
            outer: None,
            extra: None,
            environment: variables
                .filter_map(|key| Some((key.name.to_owned(), environment(key.name)?.into())))
                .collect(),
            problems: Findings::default(),
            warnings: Findings::default(),
        };
        let Some(object) = value.as_object() else {
            let given = Excerpt::of_json(value);
            reader.problems.push(Problem::new("configuration", Some(given), Reason::NoObject));
            return reader;
        };
        if object
            .keys()
            .any(|name| find(name).is_some_and(|key| key.place == Place::TransferConfig))
        {
            reader.outer = Some(object);
            if let Some(extra) = object.get(Place::ExtraConfig.name()) {
                reader.extra = extra.as_object();
                if reader.extra.is_none() {
                    let fault = Fault::new(Excerpt::of_json(extra), Reason::Value);
                    reader.wrong(key(Place::ExtraConfig.name()), Place::ExtraConfig.name(), fault);
                }
            }
        } else {
            reader.extra = Some(object);
        }
        reader.check_names(Place::TransferConfig);
        reader.check_names(Place::ExtraConfig);
        reader
    }

    /// Whether the engine's whole object was given.
    pub(super) const fn is_whole(&self) -> bool {
        self.outer.is_some()
    }

    /// What was given under this key's name, right or wrong.
    pub(super) fn said(&self, key: &Key) -> Option<&Value> {
        self.find(key.place, key.name)
    }

    /// The setting, or its default; `None` if that is a problem, which is kept.
    pub(super) fn take<T: PartialEq>(
        &mut self,
        key: &'static Key,
        parse: impl Fn(&Value) -> Parsed<T>,
    ) -> Option<Setting<T>> {
        match (self.given(key, &parse), key.fallback) {
            (Given::Right(setting), _) => Some(setting),
            (Given::Wrong, _) => None,
            (Given::Absent, Fallback::Value(default)) => {
                let default = parse(&read_default(key, default));
                Some(Setting::default(default.expect("the defaults in the table are right")))
            }
            (Given::Absent, Fallback::Required | Fallback::Described(_)) => {
                let fault = Fault { entry: None, given: None, reason: Reason::Missing };
                self.wrong(key, key.name, fault);
                None
            }
        }
    }

    /// The setting, if it is given; `None` if it is wrong, which is kept.
    pub(super) fn take_optional<T: PartialEq>(
        &mut self,
        key: &'static Key,
        parse: impl Fn(&Value) -> Parsed<T>,
    ) -> Option<Setting<Option<T>>> {
        match self.given(key, parse) {
            Given::Right(setting) => Some(setting.map(Some)),
            Given::Wrong => None,
            Given::Absent => Some(Setting::default(None)),
        }
    }

    /// What a setting says that is wrong and of no use here.
    pub(super) fn fault_in_unused<T>(
        &self,
        key: &Key,
        parse: impl Fn(&Value) -> Parsed<T>,
    ) -> Option<Excerpt> {
        let given = self.find(key.place, key.name)?;
        parse(given).is_err().then(|| Excerpt::of_json(given))
    }

    /// Keeps what is wrong with a setting that was given under `name`.
    pub(super) fn wrong(&mut self, key: &Key, name: &str, fault: Fault) {
        self.problems.push(Problem::of(key, name, fault));
    }

    fn given<T: PartialEq>(
        &mut self,
        key: &'static Key,
        parse: impl Fn(&Value) -> Parsed<T>,
    ) -> Given<T> {
        let mut found: Option<(&'static str, T)> = None;
        let mut sound = true;
        for name in key.names() {
            let Some(value) = self.find(key.place, name) else { continue };
            let (shown, parsed) = (Excerpt::of_json(value), parse(value));
            if let Some(alias) = key.alias.filter(|alias| alias.name == name)
                && let Some(since) = alias.deprecated_since
            {
                self.warnings.push(Warning::Deprecated { key: name, instead: key.name, since });
            }
            match (parsed, &found) {
                (Err(faults), _) => {
                    sound = false;
                    for fault in faults {
                        self.wrong(key, name, fault);
                    }
                }
                (Ok(value), Some((other, said))) => {
                    if value != *said {
                        sound = false;
                        let reason = Reason::Conflict { other };
                        self.problems.push(Problem::new(name, Some(shown), reason));
                    }
                }
                (Ok(value), None) => found = Some((name, value)),
            }
        }
        let source = match key.place {
            Place::Environment => Source::Variable,
            Place::ExtraConfig | Place::TransferConfig => Source::Key,
        };
        match found {
            _ if !sound => Given::Wrong,
            Some((name, value)) => Given::Right(Setting { value, source: source(name) }),
            None => Given::Absent,
        }
    }

    fn check_names(&mut self, place: Place) {
        let names: Vec<&'static str> = KEYS
            .iter()
            .filter(|key| key.place == Place::ExtraConfig || key.place == place)
            .flat_map(Key::names)
            .collect();
        for name in self.object(place).into_iter().flat_map(Map::keys) {
            match find(name) {
                Some(known) if known.place != place => {
                    let reason = Reason::Misplaced { found: place, belongs: known.place };
                    self.problems.push(Problem::new(name, None, reason));
                }
                Some(known) if known.kind == Kind::Unread => {
                    self.warnings.push(Warning::NotRead { key: known.name });
                }
                Some(_) => {}
                None => self.check_unknown(place, name, &names),
            }
        }
    }

    fn check_unknown(&mut self, place: Place, name: &str, names: &[&'static str]) {
        let nearest = match (guess(name, names), place) {
            (Guess::Misspelt(nearest), _) => Some(nearest),
            (Guess::StartsLikeOurs(nearest), Place::ExtraConfig) => nearest,
            // A later engine may have keys there that start alike, and it judges its own object.
            (Guess::StartsLikeOurs(_) | Guess::Foreign, _) => {
                self.warnings.push(Warning::Foreign { key: bounded(name), place });
                return;
            }
        };
        self.problems.push(Problem::new(name, None, Reason::Unknown { nearest }));
    }

    fn find(&self, place: Place, name: &str) -> Option<&Value> {
        match place {
            Place::Environment => self.environment.get(name),
            Place::ExtraConfig | Place::TransferConfig => self.object(place)?.get(name),
        }
    }

    /// The objects outlive the reader, so that it can keep findings while it walks through them.
    const fn object(&self, place: Place) -> Option<&'a Map<String, Value>> {
        match place {
            Place::ExtraConfig => self.extra,
            Place::TransferConfig => self.outer,
            Place::Environment => None,
        }
    }
}

fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.names().any(|known| known == name))
}

fn read_default(key: &Key, text: &str) -> Value {
    match key.place {
        Place::Environment => Value::from(text),
        Place::ExtraConfig | Place::TransferConfig => {
            serde_json::from_str(text).expect("the defaults in the table are JSON")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::key::Alias;
    use super::super::value;
    use super::*;

    static RENAMED: Key = Key {
        alias: Some(Alias { name: "old_name", deprecated_since: Some("9.1.0") }),
        name: "new_name",
        place: Place::ExtraConfig,
        kind: Kind::Switch,
        fallback: Fallback::Value("false"),
        meaning: "",
        since: "9.1.0",
        example: "true",
    };

    fn take(value: &Value) -> (Option<Setting<bool>>, Vec<String>, Vec<String>) {
        let nothing = json!({});
        let mut reader = Reader { extra: value.as_object(), ..Reader::new(&nothing, &|_| None) };
        let setting = reader.take(&RENAMED, value::switch);
        (
            setting,
            reader.problems.iter().map(ToString::to_string).collect(),
            reader.warnings.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn a_deprecated_name_works_and_warns() {
        let (setting, problems, warnings) = take(&json!({"old_name": true}));
        assert_eq!(setting, Some(Setting { value: true, source: Source::Key("old_name") }));
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            warnings,
            ["old_name: deprecated since 9.1.0 and gone in the next minor release; write new_name"]
        );
        assert_eq!(take(&json!({"new_name": true})).2, [""; 0]);
    }

    #[test]
    fn two_names_may_say_the_same_but_not_contradict_each_other() {
        let (setting, problems, _) = take(&json!({"old_name": "yes", "new_name": 1}));
        assert_eq!(setting, Some(Setting { value: true, source: Source::Key("new_name") }));
        assert_eq!(problems, [""; 0]);
        let (setting, problems, _) = take(&json!({"old_name": "no", "new_name": true}));
        assert_eq!(setting, None);
        assert_eq!(
            problems,
            ["old_name, \"no\": contradicts new_name, which is another name for it"]
        );
    }

    #[test]
    fn both_names_are_checked() {
        let (setting, problems, _) = take(&json!({"old_name": "maybe", "new_name": 2}));
        assert_eq!((setting, problems.len()), (None, 2));
        assert_eq!(take(&json!({"old_name": "maybe", "new_name": true})).0, None);
    }
}
