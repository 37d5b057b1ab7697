//! Who uses how many bytes. Every byte is leased, and comes back when its holder is dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::contract::{PrincipalKey, Quota};
use crate::error::{OverQuota, QuotaScope};
use crate::memory::lock;

/// A sum of leases.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// What is leased now.
    pub(super) fn used(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Leases `amount`, whatever is leased already.
    pub(super) fn lease(self: &Arc<Self>, amount: u64) -> Lease {
        self.0.fetch_add(amount, Ordering::AcqRel);
        Lease { counter: Arc::clone(self), amount }
    }

    /// Leases `amount` if the sum stays within `max`; else returns what is leased.
    pub(super) fn try_lease(self: &Arc<Self>, amount: u64, max: u64) -> Result<Lease, u64> {
        let add = |used: u64| used.checked_add(amount).filter(|&sum| sum <= max);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add)?;
        Ok(Lease { counter: Arc::clone(self), amount })
    }
}

/// A part of a counter that is given back on drop.
#[derive(Debug)]
pub(super) struct Lease {
    counter: Arc<Counter>,
    amount: u64,
}

impl Lease {
    /// Takes `amount` (at most all) out of it.
    pub(super) fn split(&mut self, amount: u64) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Self { counter: Arc::clone(&self.counter), amount }
    }

    /// Another lease from the same counter.
    pub(super) fn another(&self, amount: u64) -> Self {
        self.counter.lease(amount)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.counter.0.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

/// What one principal uses.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) bytes: Arc<Counter>,
    pub(super) sessions: Arc<Counter>,
}

/// Bytes leased from the quotas for something stored.
#[derive(Debug)]
pub(super) struct Charge {
    total: Lease,
    account: Lease,
}

impl Charge {
    /// Takes `bytes` (at most all) out of it.
    pub(super) fn split(&mut self, bytes: u64) -> Self {
        Self { total: self.total.split(bytes), account: self.account.split(bytes) }
    }

    /// Charges `bytes` to the same principal.
    pub(super) fn another(&self, bytes: u64) -> Self {
        Self { total: self.total.another(bytes), account: self.account.another(bytes) }
    }
}

/// All counters of a store.
#[derive(Debug)]
pub(super) struct Books {
    quota: Quota,
    pub(super) memory_bytes_max: u64,
    pub(super) total: Arc<Counter>,
    pub(super) memory: Arc<Counter>,
    pub(super) spilled: Arc<Counter>,
    pub(super) sessions: Arc<Counter>,
    accounts: Mutex<HashMap<PrincipalKey, Arc<Account>>>,
}

impl Books {
    pub(super) fn new(quota: Quota, memory_bytes_max: u64) -> Self {
        Self {
            quota,
            memory_bytes_max,
            total: Arc::default(),
            memory: Arc::default(),
            spilled: Arc::default(),
            sessions: Arc::default(),
            accounts: Mutex::default(),
        }
    }

    /// A principal's account, made if there is none.
    pub(super) fn account(&self, principal: PrincipalKey) -> Arc<Account> {
        Arc::clone(lock(&self.accounts).entry(principal).or_default())
    }

    /// A principal's account, if it has one.
    pub(super) fn find(&self, principal: &PrincipalKey) -> Option<Arc<Account>> {
        lock(&self.accounts).get(principal).map(Arc::clone)
    }

    /// Forgets the accounts that nobody uses.
    pub(super) fn forget_unused(&self) {
        lock(&self.accounts).retain(|_, account| {
            let is_held = Arc::strong_count(account) > 1;
            is_held || account.bytes.used() > 0 || account.sessions.used() > 0
        });
    }

    /// Refuses if there is no room for a single byte more.
    pub(super) fn check_room(&self, account: &Account) -> Result<(), OverQuota> {
        drop(self.charge(account, 1)?);
        Ok(())
    }

    /// Charges `bytes` if both quotas have room.
    pub(super) fn charge(&self, account: &Account, bytes: u64) -> Result<Charge, OverQuota> {
        let refuse = |scope, bytes_max| {
            move |used_bytes| OverQuota { scope, used_bytes, added_bytes: bytes, bytes_max }
        };
        let max = self.quota.total_bytes_max;
        let total = self.total.try_lease(bytes, max).map_err(refuse(QuotaScope::Total, max))?;
        let max = self.quota.principal_bytes_max;
        let leased = account.bytes.try_lease(bytes, max);
        let account = leased.map_err(refuse(QuotaScope::Principal, max))?;
        Ok(Charge { total, account })
    }

    /// Charges `bytes` whatever the quotas say.
    pub(super) fn charge_always(&self, account: &Account, bytes: u64) -> Charge {
        Charge { total: self.total.lease(bytes), account: account.bytes.lease(bytes) }
    }
}
