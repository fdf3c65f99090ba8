// Package limits defines all resource limits of the project in one place. With them every caller
// has a bounded cost, even a slow or hostile one. docs/security.md lists them.
//
// The limits are no settings: each is far above the needs of a deployment. Only GOMEMLIMIT lowers one of
// them, ServerRequestsBytes. The package has no code;
// the packages that receive input enforce the limits.
//
// It is not for users and may change with any version.
package limits

import "time"

// Limits of every listener.
const (
	// HeaderBytes is the maximum size of a request's headers.
	HeaderBytes = 32 << 10
	// HeaderTime is the time for a client to send its headers, and for a TLS handshake.
	HeaderTime = 10 * time.Second
	// BodyTime is the time for a client to send a body, or the next message of a stream.
	BodyTime = 30 * time.Second
	// WriteTime is the time for a client to read the data of one write.
	WriteTime = 30 * time.Second
	// IdleTime is the time that a connection may wait for its next request.
	IdleTime = 2 * time.Minute
	// StopTime is the time for running requests when the process stops.
	StopTime = 5 * time.Second
	// Streams is the maximum number of parallel requests on one HTTP/2 connection.
	Streams = 100
	// BodyCopies is the number of times that a request's body is in memory while a server decodes
	// and handles it. A body counts this many times: as received, in a decoding buffer of up to
	// twice its size, and as a message. Later the stored document and its command replace the
	// buffer. A compressed body counts this many times both as received and decompressed.
	BodyCopies = 4
	// ShareBytes is the maximum part of RequestsBytes or ServerRequestsBytes for one request. The
	// largest watch fits in: a page of records, an event of 16 MB, and all remembered names.
	ShareBytes = 192 << 20
)

// Limits of the Deployment API and of a process's operator port.
const (
	// RequestBytes is the maximum size of a request's body. Compressed bodies are refused.
	RequestBytes = 256 << 10
	// RequestsBytes is the maximum memory of all bodies that a listener processes in parallel, with
	// BodyCopies.
	RequestsBytes = 64 << 20
	// Connections is the maximum number of connections of one listener; more wait.
	Connections = 4096
	// Requests is the maximum number of parallel requests of one listener. Calls that wait for news
	// count.
	Requests = 4096
	// Watches is the maximum number of WatchDeployment streams of a process.
	Watches = 128
	// OperatorShare reserves one of this many requests and watches of a listener for operators.
	OperatorShare = 8
	// ForwardedBytes is the maximum size of an answer, or of one message of a stream, from another
	// controller that a call was forwarded to.
	ForwardedBytes = 8 << 20
	// Forwards is the maximum number of parallel calls that a process forwards to the same controllers,
	// without streams. More wait.
	Forwards = 16
)

// Limits of a server's API.
const (
	// ServerRequestBytes is the maximum size of a request's body, or of one message of a stream, before
	// and after decompression.
	ServerRequestBytes = 8 << 20
	// ServerRequestsBytes is the maximum memory of all parallel requests: bodies, responses to slow
	// readers, and the data that watches remember and send.
	ServerRequestsBytes = 512 << 20
	// LeastRequestsBytes is that memory in a process with a small GOMEMLIMIT. The largest body fits in,
	// also if it is compressed, kept for another run, and decoded again for another version.
	LeastRequestsBytes = 128 << 20
	// CompressBytes is the size from which responses are compressed, if the client accepts that.
	// Compressing smaller ones takes more time than it saves.
	CompressBytes = 1 << 10
	// ServerConnections is the maximum number of connections of the listener; more wait.
	ServerConnections = 16 << 10
	// ServerRequests is the maximum number of parallel requests, including watches.
	ServerRequests = 16 << 10
)

// Limits of stored data.
const (
	// RingSize is the maximum number of shards of a deployment.
	RingSize = 1024
	// NameBytes is the maximum length of a deployment's name.
	NameBytes = 200
	// VersionBytes is the maximum length of a version's name with its location.
	VersionBytes = 100
	// Deployments is the maximum number of deployments in one coordination store.
	Deployments = 200
	// Warnings and WarningBytes bound the security warnings that a process announces.
	Warnings     = 8
	WarningBytes = 300
	// Copies bounds the states of copies of other regions' records that a server announces.
	Copies = 256
	// Moves bounds the kinds and regions with moves that a server announces.
	Moves = 64
	// Hooks is the maximum number of hooks in a configuration.
	Hooks = 16
	// Fixtures is the maximum number of initial records of a version, which one transaction
	// creates.
	Fixtures = 1000
	// Clients is the maximum number of application registrations at one controller. One caller may
	// have at most half of them, so that others find room.
	Clients = 4000
)
