package client

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Only tests of this package use these names.

func (n *Client) CreateOnceAs(p0 context.Context, p1 []string, p2 bson.ObjectID, p3 []statement) (bool, error) {
	return n.createOnce(p0, p1, p2, p3)
}

var Command = command

type Statement = statement

func (n *Client) Statement(p0 record.Tokens, p1 record.Mutation) (statement, error) {
	return n.statement(p0, p1)
}

func (n *Client) WriteRun(p0 context.Context, p1 []statement) error { return n.writeRun(p0, p1) }
