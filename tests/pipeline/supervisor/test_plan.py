"""A port that cannot be had is known before anything is started."""

import socket
from pathlib import Path

import pytest

from pipeline.supervisor.home import Home, HomeError
from pipeline.supervisor.plan import Plan, check_ports, why_taken


def listening(family: int, address: str) -> socket.socket:
    taken = socket.socket(family)
    try:
        taken.bind((address, 0))
    except OSError:
        taken.close()
        pytest.skip(f"this machine has no {address}")
    taken.listen()
    return taken


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_taken_port_is_found_on_either_kind_of_address(family: int, address: str) -> None:
    with listening(family, address) as taken:
        port = taken.getsockname()[1]
        assert "taken" in str(why_taken(address, port))
    assert why_taken(address, port) is None


def test_an_address_that_is_not_ours_is_said() -> None:
    assert "not to be had" in str(why_taken("192.0.2.1", 8080))  # reserved for documentation
    assert "no address" in str(why_taken("no such host", 8080))


def test_the_flag_is_named(tmp_path: Path) -> None:
    def plan(http: int, broker: int, edges: int = 1) -> Plan:
        return Plan(
            home=Home(tmp_path),
            host="127.0.0.1",
            edge_host="127.0.0.1",
            http=http,
            kafka=None,
            broker_port=broker,
            fsync=False,
            advertise=None,
            store=None,
            counts={"edge": edges},
        )

    with listening(socket.AF_INET, "127.0.0.1") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HomeError, match=f"port {port} on 127.0.0.1 is taken.*--http"):
            check_ports(plan(port, 0))
        with pytest.raises(HomeError, match="HEADRACE_UP_BROKER_PORT"):
            check_ports(plan(0, port))
    with pytest.raises(HomeError, match=r"no port 65536.*--edges"):
        check_ports(plan(65_535, 0, edges=2))
    check_ports(plan(0, 0, edges=2))  # any free ones
