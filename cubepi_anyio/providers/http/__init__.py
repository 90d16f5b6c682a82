"""Ask a model over HTTP: the connection, the framing, the exchange; a wire format adds its payload and its reader."""

from .client import AsyncHttpClient as AsyncHttpClient
from .client import HttpClient as HttpClient
from .client import HttpResponse as HttpResponse
from .client import Timeouts as Timeouts
