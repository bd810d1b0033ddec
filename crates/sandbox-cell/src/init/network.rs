//! The network of a cell: none, a loopback interface, or loopback with the sockets of a gateway.
//!
//! Behind a gateway every address in the world is local to the cell, through a single route. A connection to any of
//! them reaches the socket that listens on its port, and is refused at once if there is none. No packet ever leaves.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen, recv, sendto, socket_with,
};

use crate::spec::{DNS_PORT, Gateway, Network, PROXY_PORT};
use crate::step::{InitStep, StepError, at};

/// Sets up the network in its namespace while that is still allowed. Returns the gateway's sockets: those of the proxy,
/// of the resolver, and of each port, as far as they exist.
pub(super) fn set_up(network: &Network) -> Result<Vec<OwnedFd>, StepError> {
    if *network == Network::None {
        return Ok(vec![]);
    }
    sandbox_sys::net::loopback_up().map_err(at(InitStep::BringLoopbackUp))?;
    let Network::Gateway(gateway) = network else { return Ok(vec![]) };
    if !gateway.ports.is_empty() {
        route_everything_here().map_err(at(InitStep::RouteToGateway))?;
    }
    sockets(gateway).map_err(at(InitStep::OpenGatewaySockets))
}

fn sockets(gateway: &Gateway) -> rustix::io::Result<Vec<OwnedFd>> {
    let mut sockets = vec![];
    if gateway.proxy {
        sockets.push(listening(Ipv4Addr::LOCALHOST, PROXY_PORT)?);
    }
    if gateway.dns {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, DNS_PORT))?;
        sockets.push(socket);
    }
    for port in &gateway.ports {
        sockets.push(listening(Ipv4Addr::UNSPECIFIED, *port)?);
    }
    Ok(sockets)
}

fn listening(address: Ipv4Addr, port: u16) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(address, port))?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Adds the route `local default dev lo`.
fn route_everything_here() -> rustix::io::Result<()> {
    // Protocol 0 of netlink is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &route_message(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0_u8; 256];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // An acknowledgement is an error message with code 0, after its header.
    let number = answer.get(16..20).filter(|_| length >= 20).ok_or(Errno::PROTO)?;
    match i32::from_ne_bytes([number[0], number[1], number[2], number[3]]) {
        0 => Ok(()),
        number => Err(Errno::from_raw_os_error(-number)),
    }
}

/// The netlink request: a header, the route, and the interface.
fn route_message() -> Vec<u8> {
    // Loopback is interface 1 in every network namespace.
    const LOOPBACK: u32 = 1;
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK;
    let mut message = vec![];
    message.extend(36_u32.to_ne_bytes());
    message.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend(u16::try_from(flags).unwrap_or_default().to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    // Family, lengths of destination and source, type of service, table, protocol, scope, type, flags.
    let descendants = u8::try_from(libc::AF_INET).unwrap_or_default();
    message.extend([
        descendants,
        0,
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ]);
    message.extend(0_u32.to_ne_bytes());
    message.extend(8_u16.to_ne_bytes());
    message.extend(libc::RTA_OIF.to_ne_bytes());
    message.extend(LOOPBACK.to_ne_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_length_matches_its_header() {
        let message = route_message();
        assert_eq!(message.len(), 36);
        assert_eq!(message[..4], 36_u32.to_ne_bytes());
    }
}
