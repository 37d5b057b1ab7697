//! Does the projection by which states are told apart leave out anything that matters?
//!
//! The checker looks at one state of each fingerprint only. So every other state with that
//! fingerprint must do the same: the same actions, to states of the same fingerprints. This walks a
//! whole space and compares all arrivals, not only the first.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model as _;

use crate::config::Config;
use crate::model::Model;
use crate::world::World;

/// How many arrivals were compared with the first at their fingerprint; `None`: one behaves
/// differently.
pub fn arrivals_alike(config: &Config) -> Option<usize> {
    let model = Model::new(config.clone());
    let mut first: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut arrived = VecDeque::from(model.init_states());
    let mut compared = 0;
    while let Some(world) = arrived.pop_front() {
        let next: Vec<World> = model.next_states(&world);
        let prints: Vec<u64> = next.iter().map(fingerprint).collect();
        match first.get(&fingerprint(&world)) {
            Some(known) if *known == prints => compared += 1,
            Some(_) => return None,
            None => {
                first.insert(fingerprint(&world), prints);
                arrived.extend(next);
            }
        }
    }
    Some(compared)
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
