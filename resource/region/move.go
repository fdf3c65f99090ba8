package region

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Step is how far the move of a record to another region is, in the record of one of both regions.
type Step string

// The steps of a move. The old owner goes from Leaving to Left, the new one from Arriving to Arrived. A
// record whose new owner has lost it goes from Left to Missing.
const (
	// Leaving is a record that this region owns and that is about to move. Its content does not
	// change. The move can be cancelled.
	Leaving Step = "leaving"
	// Left is a record that this region has given away for good. It is deleted once the new owner has
	// it.
	Left Step = "left"
	// Missing is a record that this region has given away, but whose new owner answers that it has no
	// record of the move: a backup of it was restored, for example. A person deletes the record or takes
	// it back.
	Missing Step = "missing"
	// Arriving is a record that this region has reserved for a move. Another region owns it.
	Arriving Step = "arriving"
	// Arrived is a record that this region owns and that came from another one.
	Arrived Step = "arrived"
)

// Move is the state of a move in a record. The zero value is no move.
type Move struct {
	Step   Step
	Region string // the other region
	ID     string // of the move, from the old owner (NewID)
	// Nonce identifies the reservation of the new owner. Without it, a server that slept could bring a
	// record back long after the move. Leaving has none.
	Nonce string
}

// String returns the text of the state, as the field of the record has it.
func (m Move) String() string {
	switch m.Step {
	case "":
		return ""
	case Leaving:
		return strings.Join([]string{string(m.Step), m.Region, m.ID}, separator)
	default:
		return strings.Join([]string{string(m.Step), m.Region, m.ID, m.Nonce}, separator)
	}
}

// ParseMove returns the state of a text. Any other text is no move.
func ParseMove(text string) Move {
	parts := strings.Split(text, separator)
	switch {
	case len(parts) == 3 && parts[0] == string(Leaving):
		return Move{Step: Leaving, Region: parts[1], ID: parts[2]}
	case len(parts) == 4 && (parts[0] == string(Left) || parts[0] == string(Missing) || parts[0] == string(Arriving) || parts[0] == string(Arrived)):
		return Move{Step: Step(parts[0]), Region: parts[1], ID: parts[2], Nonce: parts[3]}
	}
	return Move{}
}

// Owns reports whether a region owns a record in this state.
func (m Move) Owns() bool { return m.Step != Left && m.Step != Missing && m.Step != Arriving }

// NewID returns the id of a new move. version is the API version whose form the record has, and now the
// time that operators see.
func NewID(version string, now time.Time) string {
	return fmt.Sprintf("%s.%d.%s", version, now.UnixMilli(), rand.Text())
}

// OfID returns the parts of an id.
func OfID(id string) (version string, begun time.Time) {
	rest, _, _ := cutLast(id)
	version, millis, _ := cutLast(rest)
	n, err := strconv.ParseInt(millis, 10, 64)
	if err != nil {
		return "", time.Time{}
	}
	return version, time.UnixMilli(n)
}

func cutLast(text string) (before, after string, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

// MoveOf returns the state of a move in a document.
func (k Kind) MoveOf(doc bson.Raw) Move {
	if k.Move == "" {
		return Move{}
	}
	text, _ := doc.Lookup(k.Move).StringValueOK()
	return ParseMove(text)
}

// WithMove returns a document with another state of a move. Without a move the field is left out.
func (k Kind) WithMove(doc bson.Raw, m Move) (bson.Raw, error) {
	text := m.String()
	if have, ok := doc.Lookup(k.Move).StringValueOK(); ok && have == text && text != "" {
		return doc, nil
	}
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	out := make(bson.D, 0, len(elements)+1)
	for _, e := range elements {
		if e.Key() != k.Move {
			out = append(out, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	if text != "" {
		out = append(out, bson.E{Key: k.Move, Value: text})
	} else if len(out) == len(elements) {
		return doc, nil
	}
	return bson.Marshal(out)
}
