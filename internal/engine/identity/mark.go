package identity

import (
	"encoding/json"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Format is the newest version of a mark's body. A binary refuses a newer one.
const Format = 3

// plainFormat is the format for namespaces without encrypted records. Older binaries read it.
const plainFormat = 1

// unsealedFormat is the format for key states without a seal by a holder of a key.
const unsealedFormat = 2

// Mark is the note in a namespace's database about that namespace.
type Mark struct {
	Format    int    `bson:"format"`
	Namespace string `bson:"namespace"` // random, made once
	Epoch     uint64 `bson:"epoch"`     // latest direction epoch seen
	Current   bool   `bson:"current"`   // its version was current in that epoch
	// Next is a switch that may have happened. It is announced before the flip and removed when its
	// end is recorded.
	Next *Next `bson:"next,omitempty"`
	// Aborted is the latest abandoned attempt to switch away from this namespace.
	Aborted *Attempt `bson:"aborted,omitempty"`
	// State is the Deployment record as JSON, without history and upgrades in progress.
	State string `bson:"state"`
	// Keys describe the encryption of managed kinds' records; nil: never encrypted. A mark with
	// keys has a format that older binaries refuse.
	Keys *sealed.State `bson:"keys,omitempty"`

	rev  int64
	body bson.Raw // as read
}

// Attempt identifies one entry into SWITCHING.
type Attempt struct {
	ID      string `bson:"id"`
	Attempt uint64 `bson:"attempt"`
}

// Next is a direction epoch that may have begun, and the current version in it.
type Next struct {
	ID      string `bson:"id"`
	Attempt uint64 `bson:"attempt"`
	Epoch   uint64 `bson:"epoch"`
	To      string `bson:"to"`
}

func decodeMark(m record.Mark) (Mark, error) {
	var out Mark
	if err := rawdoc.Unmarshal(m.Body, &out); err != nil {
		return out, fmt.Errorf("mark of %s: %w", m.Owner, err)
	}
	// A newer binary may rely on fields that this one would drop with its next write.
	if out.Format > Format {
		return out, fmt.Errorf("mark of %s has format %d, but this binary knows %d: use a newer binary", m.Owner, out.Format, Format)
	}
	out.rev, out.body = m.Rev, m.Body
	return out, nil
}

func (m Mark) encode(o record.Owner) (record.Mark, error) {
	switch {
	// Use the oldest format that can express the mark, so that older binaries keep working.
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

// state encodes the part of a Deployment that a rebuild needs.
func state(d upgradestate.Deployment) (string, error) {
	d = upgradestate.Clone(d)
	// These fields describe work in progress, and a rebuild must not resume any.
	d.History, d.Available, d.Upgrade, d.Update, d.Following = nil, nil, nil, nil, nil
	text, err := json.Marshal(d)
	return string(text), err
}

// Deployment decodes State; a mark without State gives the zero record.
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
