"""A TCP proxy on loopback between a server and its Redis, which can be cut, held, made deaf or slowed down."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

PIECE = 65536


class Link:
    """One server's way to Redis. Modes: pass, cut, hold (nothing passes, all arrives later), deaf (answers are lost), slow."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: str) -> None:
        self.loop, self.upstream = loop, upstream
        self.mode = "pass"
        self.connections: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()
        self.listener: asyncio.Server | None = None
        self.address = ("", 0)

    async def open(self) -> None:
        self.listener = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.address = self.listener.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        if self.listener:
            self.listener.close()
        await self.drop()

    async def turn(self, mode: str) -> None:
        """Changes the mode. Connections end with a cut, and after a time in which answers were lost."""
        if self.mode == "deaf":
            await self.drop()  # before anything that was held can pass
        self.mode = mode
        self.changed.set()
        self.changed = asyncio.Event()
        if mode == "cut":
            await self.drop()

    async def drop(self) -> None:
        ending = list(self.connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        ends = [writer]
        try:
            if self.mode == "cut":
                return
            up_reader, up_writer = await asyncio.open_unix_connection(self.upstream)
            ends.append(up_writer)
            ways = [
                asyncio.ensure_future(self.pump(reader, up_writer, False)),
                asyncio.ensure_future(self.pump(up_reader, writer, True)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.connections.discard(task)
            for end in ends:
                end.close()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                while self.mode == "hold" or (self.mode == "deaf" and answers):
                    await self.changed.wait()
                if self.mode == "slow":
                    await asyncio.sleep(0.08)
                writer.write(piece)
                await writer.drain()


class Links:
    """The links of all servers, in a thread of their own."""

    def __init__(self, upstream: str, names: list[str]) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.links = {name: Link(self.loop, upstream) for name in names}
        for link in self.links.values():
            self.call(link.open())

    def call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def turn(self, name: str, mode: str) -> None:
        self.call(self.links[name].turn(mode))

    def address(self, name: str) -> str:
        host, port = self.links[name].address
        return f"{host}:{port}"

    def close(self) -> None:
        for link in self.links.values():
            self.call(link.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()
