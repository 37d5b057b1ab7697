//! Who uses how many bytes: in memory as committed, in the table `principals` for the next start.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::contract::{PrincipalKey, PrincipalUsage, Quota};
use crate::error::{OverQuota, QuotaScope};
use crate::sqlite::row::{digest, number};

/// What is added to, or (negative) taken from, what a principal uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) bytes: i64,
    pub(super) sessions: i64,
    pub(super) tokens: i64,
}

impl Amounts {
    fn add(&mut self, other: Self) {
        // What a damaged file says may be any number.
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sessions = self.sessions.saturating_add(other.sessions);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}

/// What is committed.
#[derive(Debug)]
pub(super) struct Books {
    quota: Quota,
    total: Amounts,
    principals: HashMap<PrincipalKey, Amounts>,
}

/// What a transaction adds so far.
#[derive(Debug, Default)]
pub(super) struct Entries {
    total: Amounts,
    principals: HashMap<PrincipalKey, Amounts>,
}

impl Entries {
    pub(super) fn add(&mut self, principal: PrincipalKey, amounts: Amounts) {
        self.total.add(amounts);
        self.principals.entry(principal).or_default().add(amounts);
    }
}

impl Books {
    /// Reads what is committed.
    pub(super) fn read(connection: &Connection, quota: Quota) -> rusqlite::Result<Self> {
        let mut books = Self { quota, total: Amounts::default(), principals: HashMap::new() };
        let mut query =
            connection.prepare("select key, bytes, sessions, tokens from principals")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let key = digest(row.get_ref(0)?.as_blob()?)?;
            let amounts =
                Amounts { bytes: row.get(1)?, sessions: row.get(2)?, tokens: row.get(3)? };
            books.total.add(amounts);
            books.principals.insert(key, amounts);
        }
        drop(rows);
        drop(query);
        Ok(books)
    }

    /// Whether `bytes` more of a principal fit, after what the transaction adds already.
    pub(super) fn check_room(
        &self,
        entries: &Entries,
        principal: &PrincipalKey,
        bytes: u64,
    ) -> Result<(), OverQuota> {
        let of = |principals: &HashMap<PrincipalKey, Amounts>| {
            principals.get(principal).map_or(0, |amounts| amounts.bytes)
        };
        let total = number(self.total.bytes.saturating_add(entries.total.bytes));
        let own = number(of(&self.principals).saturating_add(of(&entries.principals)));
        let check = |scope, used_bytes: u64, bytes_max| {
            let fits = used_bytes.checked_add(bytes).is_some_and(|sum| sum <= bytes_max);
            let refused = OverQuota { scope, used_bytes, added_bytes: bytes, bytes_max };
            if fits { Ok(()) } else { Err(refused) }
        };
        check(QuotaScope::Total, total, self.quota.total_bytes_max)?;
        check(QuotaScope::Principal, own, self.quota.principal_bytes_max)
    }

    /// Writes what a transaction added, as part of it.
    pub(super) fn write(&self, connection: &Connection, entries: &Entries) -> rusqlite::Result<()> {
        for (key, added) in &entries.principals {
            let mut sum = self.principals.get(key).copied().unwrap_or_default();
            sum.add(*added);
            if sum == Amounts::default() {
                connection
                    .prepare_cached("delete from principals where key = ?1")?
                    .execute([&key[..]])?;
                continue;
            }
            let write = "insert or replace into principals (key, bytes, sessions, tokens)
                values (?1, ?2, ?3, ?4)";
            connection.prepare_cached(write)?.execute((
                &key[..],
                sum.bytes,
                sum.sessions,
                sum.tokens,
            ))?;
        }
        Ok(())
    }

    /// Takes over what was committed.
    pub(super) fn apply(&mut self, entries: Entries) {
        self.total.add(entries.total);
        for (key, added) in entries.principals {
            let sum = self.principals.entry(key).or_default();
            sum.add(added);
            if *sum == Amounts::default() {
                self.principals.remove(&key);
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        number(self.total.bytes)
    }

    pub(super) fn sessions(&self) -> u64 {
        number(self.total.sessions)
    }

    pub(super) fn tokens(&self) -> u64 {
        number(self.total.tokens)
    }

    pub(super) fn usage_of(&self, principal: &PrincipalKey) -> PrincipalUsage {
        let amounts = self.principals.get(principal).copied().unwrap_or_default();
        PrincipalUsage { bytes: number(amounts.bytes), sessions: number(amounts.sessions) }
    }
}
