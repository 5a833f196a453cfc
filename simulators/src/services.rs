//! Everything there is, behind one lock: the account, its quotas, the faults, the time, and what was asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::clock::{Clock, Pace};
use crate::faults::FaultBook;
use crate::journal::Journal;
use crate::metadata::Metadata;
use crate::scenario::Scenario;
use crate::throttle::{Profile, Throttle};
use crate::wire::WireStyle;
use crate::wire::signature::{Credentials, Gatekeeper, Strictness};
use crate::world::{OrderError, Parameters, Place, World};

/// What the services are made from.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) place: Place,
    pub(crate) pace: Pace,
    pub(crate) origin: Option<Timestamp>,
    pub(crate) seed: u64,
    pub(crate) credentials: Vec<Credentials>,
    pub(crate) strictness: Strictness,
}

/// The services of the account.
#[derive(Debug)]
pub(crate) struct Services {
    plan: Plan,
    pub(crate) clock: Clock,
    pub(crate) world: World,
    pub(crate) throttle: Throttle,
    pub(crate) faults: FaultBook,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) style: WireStyle,
    pub(crate) journal: Journal,
    pub(crate) metadata: Metadata,
    /// Chance on the wire; the account has its own, so that one does not depend on how often the other was asked.
    pub(crate) dice: StdRng,
}

impl Services {
    pub(crate) fn new(plan: Plan) -> Self {
        let clock = Clock::new(plan.pace, plan.origin.unwrap_or_else(berth_runtime::clock::now));
        Self {
            clock,
            world: World::new(plan.place.clone(), Parameters::default(), plan.seed, clock.now()),
            throttle: Throttle::new(Profile::default()),
            faults: FaultBook::default(),
            gatekeeper: Gatekeeper {
                region: plan.place.region.clone(),
                credentials: plan.credentials.clone(),
                strictness: plan.strictness,
            },
            style: WireStyle::default(),
            journal: Journal::default(),
            metadata: Metadata::default(),
            dice: StdRng::seed_from_u64(plan.seed ^ 0x5eed),
            plan,
        }
    }

    /// Begins anew, with nothing or with a scenario.
    pub(crate) fn reset(&mut self, scenario: Option<&Scenario>) -> Result<(), OrderError> {
        let fresh = Self::new(self.plan.clone());
        // The time goes on: clients have seen it already.
        let clock = std::mem::replace(self, fresh).clock;
        self.clock = clock;
        let now = self.clock.now();
        let seed = self.plan.seed;
        self.world = World::new(self.plan.place.clone(), Parameters::default(), seed, now);
        let Some(scenario) = scenario else { return Ok(()) };
        for order in &scenario.orders {
            self.world.perform(order.clone())?;
        }
        for (name, rule) in &scenario.faults {
            self.faults.put(name.clone(), rule.clone(), now);
        }
        for (instance, switches) in &scenario.metadata {
            self.metadata.switch(instance, switches.clone(), now);
        }
        self.throttle = Throttle::new(scenario.throttle);
        Ok(())
    }

    /// Brings the account to the time of the clock.
    pub(crate) fn bring_up(&mut self) -> Timestamp {
        self.world.advance(self.clock.now());
        self.world.now()
    }

    /// A random UUID.
    pub(crate) fn request_id(&mut self) -> String {
        let bits = self.dice.random::<u128>() & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let digits = format!("{bits:032x}");
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }

    pub(crate) fn seed(&self) -> u64 {
        self.plan.seed
    }
}

/// The services, shared by the listeners.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<Services>>);

impl Shared {
    pub(crate) fn new(services: Services) -> Self {
        Self(Arc::new(Mutex::new(services)))
    }

    /// Held for one request at a time, and never across a wait.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Services> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
