//! `asof serve --flight`

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use asof::sql::{Database, FlightOptions, FlightServer};

use super::page::PageQueries;
use super::{FLIGHT_PORT, FlightChoice};

/// A Flight SQL server to be started.
pub struct Flight {
    database: Arc<Database>,
    wish: FlightChoice,
}

impl Flight {
    /// Over the page's database. It is opened now: a client would learn of an error too late.
    pub fn over(page: Option<&PageQueries>, wish: FlightChoice) -> anyhow::Result<Self> {
        let page = page.ok_or_else(|| anyhow!("there is no recording to query in SQL"))?;
        let database = page.database().map_err(anyhow::Error::msg)?;
        Ok(Flight { database, wish })
    }

    /// Its address, beside a page at this address.
    pub fn address(&self, page: SocketAddr) -> SocketAddr {
        self.wish
            .unwrap_or_else(|| SocketAddr::new(page.ip(), FLIGHT_PORT))
    }

    /// Starts the server.
    pub fn start(&self, page: SocketAddr, token: Option<&str>) -> anyhow::Result<FlightService> {
        let listen = self.address(page);
        let options = FlightOptions {
            listen,
            any_port: self.wish.is_none(),
            token: token.map(str::to_owned),
            ..FlightOptions::default()
        };
        let server = FlightServer::start(Arc::clone(&self.database), &options);
        let server = server.with_context(|| {
            format!("cannot listen for Flight SQL on {listen}; choose another address with --flight=ADDRESS")
        })?;
        Ok(FlightService {
            server,
            token: options.token,
        })
    }
}

/// Serves Flight SQL until it is dropped.
pub struct FlightService {
    server: FlightServer,
    token: Option<String>,
}

impl FlightService {
    /// A line with the address.
    pub fn greeting(&self) -> String {
        let address = self.server.address();
        let token = self.token.as_ref();
        let token = token.map(|token| format!(" (token {token})"));
        format!(
            "Flight SQL: grpc://{address}{}\n",
            token.unwrap_or_default()
        )
    }
}
