"""Ask a model over HTTP: the connection, the framing, the exchange; a wire format adds its payload and its reader."""

from .client import AsyncHttpClient as AsyncHttpClient
from .client import HttpClient as HttpClient
from .client import HttpResponse as HttpResponse
from .client import Timeouts as Timeouts
from .exchange import RequestToSign as RequestToSign
from .exchange import ResponseReader as ResponseReader
from .exchange import Sign as Sign
from .framing import Decoder as Decoder
from .framing import Framing as Framing
from .provider import HttpProvider as HttpProvider
