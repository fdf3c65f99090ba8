package client

import (
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
)

// Learned is what a client has learned about the lists of a kind.
type Learned struct {
	Kind        string
	Each        float64
	Vain, Skips int
}

// LearnedOf returns what the client has learned about the lists of a kind.
func (c *Client) LearnedOf(kind string) Learned {
	h := c.habits.of[kind]
	return Learned{h.kind, h.each, h.vain, h.skips}
}

// Failed makes the client forget what it sends ahead, as after a failure.
func (c *Client) Failed(list record.ListRequest) { c.habits.sent(list, false) }

// FreeSessions returns the sessions that no call uses, with their last transaction numbers.
func (c *Client) FreeSessions() (sessions []*mongo.Session, numbers []int64) {
	for _, s := range c.sessions.free {
		sessions, numbers = append(sessions, s.session), append(numbers, s.number)
	}
	return sessions, numbers
}
