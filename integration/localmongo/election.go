package localmongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// askLimit bounds one request to a node that may be paused.
	askLimit = time.Second
	// stepDownSeconds is the time for which a stepped-down node may not become primary again.
	stepDownSeconds = 10
)

// Primary waits for a node that accepts writes, and returns it. A paused or isolated node may still
// believe that it is primary; of several, the one elected last counts. Primary skips paused and
// stopped nodes. It works only for replica sets that this process runs.
func (s *Server) Primary(ctx context.Context) (*Node, error) {
	var found *Node
	err := poll(ctx, func() error {
		found = nil
		latest := ""
		// Election ids grow, and their hexadecimal form has a fixed length, so they compare as
		// texts.
		for i, h := range s.askAll(ctx) {
			if h.IsWritablePrimary && h.ElectionID.Hex() > latest {
				found, latest = s.nodes[i], h.ElectionID.Hex()
			}
		}
		if found == nil {
			return errors.New("find primary: no node takes writes")
		}
		return nil
	})
	return found, err
}

// AwaitMembers waits until one node is primary and all others are secondaries, as after Start.
func (s *Server) AwaitMembers(ctx context.Context) error {
	return poll(ctx, func() error {
		primaries, secondaries := 0, 0
		for _, h := range s.askAll(ctx) {
			switch {
			case h.IsWritablePrimary:
				primaries++
			case h.Secondary:
				secondaries++
			}
		}
		if primaries != 1 || secondaries != len(s.nodes)-1 {
			return fmt.Errorf("await members: of %d nodes %d are primary and %d follow", len(s.nodes), primaries, secondaries)
		}
		return nil
	})
}

// askAll asks all nodes for their roles at the same time. A node without a response has no role.
func (s *Server) askAll(ctx context.Context) []hello {
	roles := make([]hello, len(s.nodes))
	answered := make(chan struct{})
	for i, n := range s.nodes {
		go func() {
			defer func() { answered <- struct{}{} }()
			// A stopped node has no role, and a connection attempt would take until the limit.
			if n.Pid() == 0 {
				return
			}
			roles[i], _ = n.ask(ctx) // no response means no role
		}()
	}
	for range s.nodes {
		<-answered
	}
	return roles
}

func (n *Node) ask(ctx context.Context) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	client, err := direct(n.addr)
	if err != nil {
		return hello{}, err
	}
	// With the request's limit: a paused node would keep Disconnect waiting.
	defer func() { _ = client.Disconnect(ctx) }()
	return ask(ctx, client)
}

// StepDown makes a primary step down. A node with all of its writes is preferred as the successor.
// It does not wait for the election.
func (n *Node) StepDown(ctx context.Context) error {
	client, err := direct(n.addr)
	if err != nil {
		return err
	}
	defer disconnect(ctx, client)
	// force: the node steps down even if no other one catches up in time.
	cmd := bson.D{{Key: "replSetStepDown", Value: stepDownSeconds}, {Key: "secondaryCatchUpPeriodSecs", Value: 5}, {Key: "force", Value: true}}
	if err := client.Database("admin").RunCommand(ctx, cmd).Err(); err != nil {
		return fmt.Errorf("step mongod %s down: %w", n.addr, err)
	}
	return nil
}
