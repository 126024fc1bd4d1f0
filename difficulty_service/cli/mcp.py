"""`difficulty mcp`: the service as tools of an assistant."""

from difficulty_service.client.connection import DEFAULT_URL


def mcp(*, url: str = DEFAULT_URL) -> None:
    """Offers a running service to an assistant, over the Model Context Protocol.

    The assistant starts this command and talks to it over standard input and output. It lists
    datasets and jobs, submits jobs, looks at doubtful samples and marks them, as far as the key in
    the environment variable DIFFICULTY_KEY may.

    Args:
        url: Address of the service.
    """
    import asyncio

    from difficulty_service.client.mcp_server import serve

    asyncio.run(serve(url))
