package mongostore

import (
	"context"
	"fmt"
	"net"
	"strings"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// NameCount returns how often a collection or view was read and written. The call itself counts as
// a read. Inserts, updates and deletes that a view refuses count as writes, but a refused
// findAndModify does not. Each member of a replica set counts only its own operations.
func (n *Namespace) NameCount(ctx context.Context, name string) (count record.NameCount, err error) {
	// On a sharded cluster each shard has its own counters.
	cursor, err := n.DB.Collection(name).Aggregate(ctx, bson.A{bson.D{{Key: "$collStats", Value: bson.D{{Key: "latencyStats", Value: bson.D{}}}}}})
	if err != nil {
		return count, fmt.Errorf("count uses of %s.%s: %w", n.Name, name, conn.WithPrivilege(err))
	}
	var shards []struct {
		LatencyStats struct {
			Reads, Writes struct{ Ops int64 }
		} `bson:"latencyStats"`
	}
	if err := conn.All(ctx, cursor, &shards); err != nil {
		return count, fmt.Errorf("count uses of %s.%s: %w", n.Name, name, err)
	}
	for _, s := range shards {
		count.Reads += s.LatencyStats.Reads.Ops
		count.Writes += s.LatencyStats.Writes.Ops
	}
	return count, nil
}

// NameUsers returns the clients that use one of the names at this moment. It leaves out clients
// with this connection's application name. Through mongos it covers all shards. The contents of
// their commands stay on the server.
func (n *Namespace) NameUsers(ctx context.Context, names []string) ([]record.NameUser, error) {
	spaces := make(bson.A, len(names))
	for i, name := range names {
		spaces[i] = n.Name + "." + name
	}
	cursor, err := n.Admin().Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleCursors", Value: true}}}},
		bson.D{{Key: "$match", Value: bson.D{
			{Key: "ns", Value: bson.D{{Key: "$in", Value: spaces}}}, {Key: "appName", Value: bson.D{{Key: "$ne", Value: n.App}}},
			{Key: "clientMetadata", Value: bson.D{{Key: "$exists", Value: true}}}, // the server's own operations have none
		}}},
		bson.D{{Key: "$project", Value: bson.D{
			// A shard sees the router as the client; the router passes on the metadata of its own
			// client.
			{Key: "ns", Value: 1}, {Key: "client", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$clientMetadata.mongos.client", "$client", "$client_s"}}}}, {Key: "appName", Value: 1},
			{Key: "driver", Value: "$clientMetadata.driver"},
		}}},
		bson.D{{Key: "$limit", Value: 100}},
	})
	if err != nil {
		return nil, fmt.Errorf("look who uses names of %s: %w", n.Name, conn.WithPrivilege(err))
	}
	var ops []struct {
		NS, Client string
		AppName    string `bson:"appName"`
		Driver     struct{ Name, Version string }
	}
	if err := conn.All(ctx, cursor, &ops); err != nil {
		return nil, fmt.Errorf("look who uses names of %s: %w", n.Name, err)
	}
	var users []record.NameUser
	for _, op := range ops {
		u := record.NameUser{
			Name: strings.TrimPrefix(op.NS, n.Name+"."), Application: printable(op.AppName),
			Driver: printable(strings.TrimSpace(op.Driver.Name + " " + op.Driver.Version)), Address: printable(op.Client),
		}
		if host, _, err := net.SplitHostPort(op.Client); err == nil {
			u.Address = printable(host)
		}
		users = append(users, u)
	}
	return users, nil
}

// printable returns a client's text with unprintable characters replaced, cut to 128 characters.
func printable(text string) string {
	const most = 128
	clean := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text))
	return string(clean[:min(most, len(clean))])
}
