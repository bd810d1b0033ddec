//! Webhooks of a server that was built without them: requests for them are refused, and none is delivered.

use std::future::{Ready, ready};
use std::sync::Arc;

use sandbox_executor::JsonWebhook;
use sandbox_jobs::Webhook;

use crate::config::Config;
use crate::problem::{Code, Problem};
use crate::state::App;

/// The number of concurrent deliveries.
pub(crate) const AT_ONCE: usize = 0;

/// Refuses webhooks.
#[derive(Debug)]
pub(crate) struct Webhooks;

impl Webhooks {
    pub(crate) fn new(_: &Config) -> Self {
        Self
    }

    /// Refuses every webhook.
    #[expect(clippy::unused_self, reason = "the same call as where there are webhooks")]
    pub(crate) fn check(&self, _: JsonWebhook) -> Result<Webhook, Problem> {
        let why = "webhook: this server was built without the feature webhooks; build it with --features webhooks";
        Err(Problem::new(Code::InvalidRequest, why).at("webhook"))
    }
}

/// Delivers nothing. Webhooks in a shared store are left to servers that have them.
pub(crate) fn deliver(_: Arc<App>) -> Ready<()> {
    ready(())
}
