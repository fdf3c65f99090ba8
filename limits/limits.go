// Package limits is the one place that says how much of anything there may be, so that
// any caller, slow or hostile, costs a bounded amount. docs/security.md lists them.
//
// They are no settings: each is far above what a deployment needs. It owns no code; those
// who take something in check it.
//
// It is not for users and may change with any version.
package limits

import "time"

// Of every listener.
const (
	// HeaderBytes bounds the headers of a request.
	HeaderBytes = 32 << 10
	// HeaderTime is how long a client may take for its headers, and for a TLS handshake.
	HeaderTime = 10 * time.Second
	// BodyTime is how long a client may take to send a body.
	BodyTime = 30 * time.Second
	// WriteTime is how long a client may take to read what was written to it, each time.
	WriteTime = 30 * time.Second
	// IdleTime is how long a connection may wait for its next request.
	IdleTime = 2 * time.Minute
	// StopTime is how long requests may go on when the process stops.
	StopTime = 5 * time.Second
	// Streams bounds the requests at the same time of one HTTP/2 connection.
	Streams = 100
	// ShareBytes bounds what one request holds of RequestsBytes or ServerRequestsBytes. The largest
	// watch fits in: a page of records, an event of 16 MB and all names that it may remember.
	ShareBytes = 192 << 20
)

// Of the Deployment API and the operator port of a process.
const (
	// RequestBytes bounds the body of a request. What is compressed is not taken.
	RequestBytes = 256 << 10
	// RequestsBytes bounds the bodies of all requests that a listener answers at the same time.
	RequestsBytes = 64 << 20
	// Connections bounds those of one listener; more wait.
	Connections = 4096
	// Requests bounds those that are answered at the same time by one listener, calls that
	// wait for news included.
	Requests = 4096
	// Watches bounds the streams of WatchDeployment of a process.
	Watches = 128
	// OperatorShare is the part of the requests of a listener, and of the watches, that is kept for
	// operators: one in so many.
	OperatorShare = 8
)

// Of a server's API.
const (
	// ServerRequestBytes bounds the body of a request, before and after decompression.
	ServerRequestBytes = 8 << 20
	// ServerRequestsBytes bounds what all requests that are answered at the same time hold: bodies,
	// responses that a client reads slowly, and what watches remember and send.
	ServerRequestsBytes = 512 << 20
	// CompressBytes is the size from which responses are compressed, for clients that take it: to
	// compress less costs more time than it saves on the way.
	CompressBytes = 1 << 10
	// ServerConnections bounds those of the listener; more wait.
	ServerConnections = 16 << 10
	// ServerRequests bounds those that are answered at the same time, watches included.
	ServerRequests = 16 << 10
)

// Of what is kept.
const (
	// RingSize bounds the shards of a deployment.
	RingSize = 1024
	// NameBytes bounds the name of a deployment.
	NameBytes = 200
	// VersionBytes bounds the name of a version, with its location.
	VersionBytes = 100
	// Deployments bounds those of one coordination store.
	Deployments = 200
	// Warnings and WarningBytes bound what a process announces of what is insecure about it.
	Warnings     = 8
	WarningBytes = 300
	// Hooks bounds those of a configuration.
	Hooks = 16
	// Fixtures bounds the records that a version starts with, which one transaction makes.
	Fixtures = 1000
	// Clients bounds the registrations of applications that one controller holds. A caller may have
	// half of them at most, so that others find room.
	Clients = 4000
)
