package conn

import (
	"context"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Clients shares the driver's clients among the namespaces of a process: one for each login, which is
// a connection string with the contents of its certificate files. Each client has connections and goroutines for every server of its cluster, so a process
// with hundreds of databases in one cluster should have one. The zero value and nil share nothing.
//
// A shared client ends with the last Conn that uses it.
type Clients struct {
	namespaces int // that may use one client

	mu  sync.Mutex
	all map[string]*shared
}

// shared is a client with the state that belongs to its connections and sessions.
type shared struct {
	client *mongo.Client
	conns  *connections
	left   *leftOpen
	users  int // Clients.mu guards it
}

// NewClients returns Clients for a number of namespaces. Each of them may have Config.PoolSize
// connections, as with a client of its own.
func NewClients(namespaces int) *Clients {
	return &Clients{namespaces: max(1, namespaces), all: map[string]*shared{}}
}

// pool returns the maximum number of connections of a client.
func (c *Clients) pool(size int) uint64 {
	if c == nil {
		return uint64(size)
	}
	return uint64(size) * uint64(c.namespaces)
}

// join returns the client for a configuration, and how to leave it. It calls connect for a new one.
func (c *Clients) join(cfg Config, connect func() (*shared, error)) (*shared, func(context.Context) error, error) {
	if c == nil {
		s, err := connect()
		if err != nil {
			return nil, nil, err
		}
		return s, s.client.Disconnect, nil
	}
	// Clients differ in what the driver cannot change later.
	key := fmt.Sprintf("%d %s %s %s", cfg.PoolSize, cfg.AppName, cfg.Certificates, cfg.URI)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.all[key]
	if s == nil {
		var err error
		if s, err = connect(); err != nil { // which connects in the background
			return nil, nil, err
		}
		c.all[key] = s
	}
	s.users++
	var once sync.Once
	return s, func(ctx context.Context) (err error) {
		once.Do(func() {
			c.mu.Lock()
			s.users--
			last := s.users == 0
			if last {
				delete(c.all, key)
			}
			c.mu.Unlock()
			if last {
				err = s.client.Disconnect(ctx)
			}
		})
		return err
	}, nil
}
