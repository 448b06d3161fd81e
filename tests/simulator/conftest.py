import pytest


@pytest.fixture(params=["reference", "compiled"])
def engine(request: pytest.FixtureRequest) -> str:
    """Closed forms hold in both."""
    return request.param
