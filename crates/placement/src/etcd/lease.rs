//! A lease: keys that are bound to it go when it is not kept alive.

use std::time::Duration;

use etcd_client::{Client, Error as ClientError};

use super::request::bounded;
use crate::error::Error;

/// A lease of etcd.
#[derive(Clone)]
pub(super) struct Lease {
    client: Client,
    id: i64,
    timeout: Duration,
}

impl Lease {
    /// A new lease that lasts `ttl` from each time that it was kept alive: full seconds, one at least. Etcd may make it longer.
    pub(super) async fn grant(mut client: Client, ttl: Duration, timeout: Duration) -> Result<Lease, Error> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        let answer = bounded("get a lease", timeout, client.lease_grant(seconds, None)).await?;
        Ok(Lease { id: answer.id(), client, timeout })
    }

    /// Another lease of the same etcd.
    pub(super) fn of_id(&self, id: i64) -> Lease {
        Lease { id, ..self.clone() }
    }

    pub(super) fn id(&self) -> i64 {
        self.id
    }

    /// Keeps the lease alive. False: the lease has ended, and its keys are gone.
    pub(super) async fn refresh(&mut self) -> Result<bool, Error> {
        let doing = "keep a lease alive";
        let kept = async {
            match self.client.lease_keep_alive(self.id).await {
                Ok(_) => Ok(true),
                Err(ClientError::LeaseKeepAliveError(_)) => {
                    let left = self.client.lease_time_to_live(self.id, None).await?;
                    if left.ttl() > 0 {
                        return Err(ClientError::LeaseKeepAliveError(
                            "the lease was not prolonged".to_owned(),
                        ));
                    }
                    Ok(false)
                }
                Err(error) => Err(error),
            }
        };
        bounded(doing, self.timeout, kept).await
    }

    /// Ends the lease: its keys go now.
    pub(super) async fn revoke(mut self) -> Result<(), Error> {
        bounded("end a lease", self.timeout, self.client.lease_revoke(self.id)).await.map(drop)
    }
}
