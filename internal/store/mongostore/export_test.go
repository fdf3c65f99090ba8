package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// What tests of this package use, and nobody else.

func (n *Namespace) Measure(p0 context.Context, p1 bson.D) (bson.Raw, error) {
	return n.measure(p0, p1)
}
