"""Makes connections to servers: connect, TLS, login."""

import asyncio
import importlib.metadata
import ssl
from collections.abc import Mapping
from typing import Any

from logboom.base.errors import LogboomError
from logboom.nats.config import NatsConfig
from logboom.nats.link.connection import Connection, ConnectionLostError, ConnectionUser
from logboom.nats.link.credentials import Credentials
from logboom.nats.link.servers import ServerAddress, tls_context


class DialError(LogboomError):
    """A server cannot be reached, or does not accept this client; the text says why."""


class Dialer:
    """See the module. Keeps no connection. Files of secrets and certificates are read for each: they are replaced while
    a broker runs."""

    def __init__(self, config: NatsConfig, name: str) -> None:
        """`name`: what servers know this client by. Raises LogboomError where a file of a secret or of a certificate
        cannot be used."""
        self._config = config
        self._name = name
        self._credentials = Credentials(config)
        self._credentials.check()
        if config.tls.wanted:
            tls_context(config.tls)
        self._version = importlib.metadata.version("logboom")

    async def dial(self, server: ServerAddress, user: ConnectionUser) -> tuple[Connection, Mapping[str, Any]]:
        """A connection that is logged in, and its server's INFO. Raises DialError."""
        config = self._config
        connection = Connection(user, max_unsent_bytes=config.max_unsent_bytes, ping_interval_s=config.ping_interval_s)
        is_made = False
        try:
            async with asyncio.timeout(config.connect_timeout_s):
                await self._connect(server, connection)
                info = await connection.log_in(self._options)
            is_made = True
        except TimeoutError:
            raise DialError("it does not answer") from None
        except ssl.SSLError as error:
            raise DialError(f"TLS failed: {error.reason or error}") from None
        except OSError as error:
            raise DialError(error.strerror or str(error)) from None
        except LogboomError as error:
            raise DialError(str(error)) from None
        finally:
            if not is_made:
                connection.abort("the attempt to connect has ended")
        return connection, info

    async def _connect(self, server: ServerAddress, connection: Connection) -> None:
        """With TLS where that is asked for, by the settings or by the server."""
        loop, name = asyncio.get_running_loop(), server.tls_name or server.host
        if self._config.tls.handshake_first:
            tls = await self._tls_now()
            await loop.create_connection(lambda: connection, server.host, server.port, ssl=tls, server_hostname=name)
            return
        await loop.create_connection(lambda: connection, server.host, server.port)
        if (tls_later := await self._tls_for(server, connection)) is not None:
            await connection.begin_tls(tls_later, name)

    async def _tls_for(self, server: ServerAddress, connection: Connection) -> ssl.SSLContext | None:
        info = await connection.greeting()
        wanted = server.tls or self._config.tls.wanted or bool(info.get("tls_required"))
        if wanted and not (info.get("tls_required") or info.get("tls_available")):
            raise ConnectionLostError("TLS is asked for by the settings, and the server does not speak it")
        return await self._tls_now() if wanted else None

    async def _tls_now(self) -> ssl.SSLContext:
        """With what the files hold now. To read the system's certificates takes 35 ms."""
        return await asyncio.to_thread(tls_context, self._config.tls)

    def _options(self, info: Mapping[str, Any]) -> Mapping[str, object]:
        nonce = info.get("nonce")
        return {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": self._version,
            "name": self._name,
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "echo": False,  # a stream on every subject is not to hold the acks of its own messages
            **self._credentials.options(nonce if isinstance(nonce, str) else None),
        }
