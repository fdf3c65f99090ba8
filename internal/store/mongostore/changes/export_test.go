package changes

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Only tests of this package use these names.

func (n *trail) Event(p0 bson.Raw) { n.event(p0) }

var NewTrail = newTrail

func (n *trail) Result() (record.Tokens, map[string]string) { return n.result() }
