//! One search: the whole space of a configuration, or up to the first violation of a property.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model as _};

use crate::action::Action;
use crate::config::Config;
use crate::model::{Counts, Model};
use crate::property::{ALL, Property};
use crate::story;

/// What a search found.
pub struct Found {
    /// What was searched.
    pub config: Config,
    /// States that differ.
    pub states: usize,
    /// Longest path of those.
    pub depth: usize,
    /// Time that it took.
    pub took: Duration,
    /// What was counted.
    pub counts: Counts,
    /// The first violation of each property, as a story.
    pub violations: Vec<(Property, usize, String)>,
    /// True if every state was looked at.
    pub is_whole: bool,
}

impl Found {
    /// The violation of a property.
    pub fn violation(&self, property: Property) -> Option<&str> {
        let found = self.violations.iter().find(|(other, _, _)| *other == property);
        found.map(|(_, _, story)| story.as_str())
    }
}

/// Searches the whole space, or until soon after the first violation of a property.
///
/// One thread, so that states are met in the order of their depth: counts are the same in every run
/// and the traces are shortest.
pub fn search(config: &Config, until: Option<Property>, states_max: usize) -> Found {
    let begun = Instant::now();
    // Never all: one property always holds.
    let finish = until
        .map_or(HasDiscoveries::All, |property| HasDiscoveries::AnyOf([property.name()].into()));
    let checker = Model::new(config.clone())
        .checker()
        .threads(1)
        .finish_when(finish)
        .target_state_count(states_max)
        .spawn_bfs()
        .join();
    let teller = Model::new(config.clone());
    let discoveries = checker.discoveries();
    let violations = ALL.iter().filter_map(|&property| {
        let path = discoveries.get(property.name())?.clone();
        let actions: Vec<Action> = path.into_actions();
        let mut text = story::tell(&teller, &actions);
        if property == Property::Settles {
            text += "       Then a call of the same arguments is refused for ever.\n";
        }
        Some((property, actions.len(), text))
    });
    let violations: Vec<_> = violations.collect();
    let model = checker.model();
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed).into();
    let counts = Counts {
        refused: load(&model.counts.refused),
        refused_behaving: load(&model.counts.refused_behaving),
        compared: load(&model.counts.compared),
        ends: load(&model.counts.ends),
        longest_ms: load(&model.counts.longest_ms),
    };
    Found {
        config: config.clone(),
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: begun.elapsed(),
        counts,
        is_whole: checker.state_count() < states_max,
        violations,
    }
}
