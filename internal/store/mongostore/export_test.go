package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Only tests of this package use these names.

func (n *Namespace) Measure(p0 context.Context, p1 bson.D) (bson.Raw, error) {
	return n.measure(p0, p1)
}
