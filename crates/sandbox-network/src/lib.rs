//! The network of a run: which addresses a program, an installer or a webhook may reach, and the gateway through which a
//! cell reaches them. This crate knows nothing about cells; it serves the sockets that it is handed.

mod address_policy;
#[cfg(fuzzing)]
pub mod fuzz;
mod gateway;
mod host;
mod http_client;
mod package_index;
mod resolver;
mod special_addresses;
mod stop;
mod web_address;

pub use address_policy::{AddressPolicy, NOT_ALLOWED};
pub use gateway::{CellGateway, GATEWAY_THREAD, GatewaySocketSet, HostUse, NetworkUse, Refusal};
pub use host::{HostName, HostRule};
pub use http_client::webhook_agent;
pub use package_index::{PackageIndex, hide_credentials, hosts_in};
pub use resolver::look_up;
pub use special_addresses::DenyList;
pub use web_address::{WebAddress, WebAddressError};
