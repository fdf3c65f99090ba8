package identity

import (
	"encoding/json"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/upgradestate"
)

// Format is the version of a mark's body. A binary refuses a newer one.
const Format = 3

// plainFormat is that of marks of namespaces that were never encrypted, which older binaries read.
const plainFormat = 1

// unsealedFormat is that of marks whose state of keys nobody with a key has vouched for.
const unsealedFormat = 2

// Mark is what a namespace's database records about it.
type Mark struct {
	Format    int    `bson:"format"`
	Namespace string `bson:"namespace"` // made at random, once
	Epoch     uint64 `bson:"epoch"`     // direction epoch last seen
	Current   bool   `bson:"current"`   // its version was the current one in that epoch
	// Next is a switch that may have been made: announced before it is, and gone when its end
	// is noted.
	Next *Next `bson:"next,omitempty"`
	// Aborted is the latest attempt to switch away from it that was given up.
	Aborted *Attempt `bson:"aborted,omitempty"`
	// State is the Deployment record, as JSON, without what only its present holder needs.
	State string `bson:"state"`
	// Keys are what the records of managed kinds are encrypted with; nil: they never were. Such
	// a mark has a format that binaries which know of no keys refuse.
	Keys *sealed.State `bson:"keys,omitempty"`

	rev int64
}

// Attempt is one entry into SWITCHING.
type Attempt struct {
	ID      string `bson:"id"`
	Attempt uint64 `bson:"attempt"`
}

// Next is a direction epoch that may have begun, and its current version.
type Next struct {
	ID      string `bson:"id"`
	Attempt uint64 `bson:"attempt"`
	Epoch   uint64 `bson:"epoch"`
	To      string `bson:"to"`
}

func decodeMark(m record.Mark) (Mark, error) {
	var out Mark
	if err := bson.Unmarshal(m.Body, &out); err != nil {
		return out, fmt.Errorf("mark of %s: %w", m.Owner, err)
	}
	if out.Format > Format {
		return out, fmt.Errorf("mark of %s has format %d, this binary knows %d: use a newer binary", m.Owner, out.Format, Format)
	}
	out.rev = m.Rev
	return out, nil
}

func (m Mark) encode(o record.Owner) (record.Mark, error) {
	switch {
	case m.Keys == nil:
		m.Format = plainFormat
	case m.Keys.Seal == nil:
		m.Format = unsealedFormat
	default:
		m.Format = Format
	}
	body, err := bson.Marshal(m)
	return record.Mark{Owner: o, Rev: m.rev, Body: body}, err
}

// state is the part of a Deployment that it can be rebuilt from.
func state(d upgradestate.Deployment) (string, error) {
	d = upgradestate.Clone(d)
	d.History, d.Available, d.Upgrade, d.Update = nil, nil, nil, nil
	text, err := json.Marshal(d)
	return string(text), err
}

// Deployment is the record that State holds.
func (m Mark) Deployment() (upgradestate.Deployment, error) {
	var d upgradestate.Deployment
	if m.State == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(m.State), &d); err != nil {
		return d, fmt.Errorf("read the state in a mark: %w", err)
	}
	if d.Format > upgradestate.Format {
		return d, fmt.Errorf("the state in a mark has record format %d, this binary knows %d: use a newer binary", d.Format, upgradestate.Format)
	}
	return d, nil
}
