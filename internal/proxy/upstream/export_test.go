package upstream

import (
	"net"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
)

// Direct reports whether messages go over a line.
func (c *Conn) Direct() bool { return c.line != nil }

// ID returns the driver's name of the connection.
func (c *Conn) ID() string { return c.conn.ID() }

// Lines counts the connections that carry messages of clients.
func (c *Cluster) Lines() int {
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	return len(c.lines.used)
}

// Dead counts those of them that the server has ended.
func (c *Cluster) Dead() (n int) {
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	for _, l := range c.lines.used {
		if !l.alive() {
			n++
		}
	}
	return n
}

// Lines are lines without a cluster.
type Lines struct{ *lines }

// NewLines returns lines that this dialer opens.
func NewLines(d net.Dialer) Lines {
	ls := Lines{newLines()}
	ls.dialer = d
	return ls
}

// Below returns the network connection of a line.
func Below(l net.Conn) net.Conn { return l.(*line).Conn }

// From makes further lines begin at this address.
func (ls Lines) From(local net.Addr) { ls.dialer.LocalAddr = local }

// Of returns the line below a connection of the driver; nil: it is not known.
func (ls Lines) Of(c *mnet.Connection) net.Conn {
	if l := ls.of(c); l != nil {
		return l
	}
	return nil
}

// Known counts the lines, with those that carry no messages of clients.
func (ls Lines) Known() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.dialed) + len(ls.used)
}
