package typed_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/typed"
)

// Times as seconds in one version and as dates in the other, where a large number of
// seconds overflows into another date.
type secondsDoc struct {
	ID string `bson:"_id"`
	At int64  `bson:"at"`
}

type dateDoc struct {
	ID   string    `bson:"_id"`
	Date time.Time `bson:"date"`
}

type secondsGroup struct {
	Event *secondsDoc `typed:"kind=seconds"`
}

type dateGroup struct {
	Event *dateDoc `typed:"kind=dates"`
}

func eventGroup(oneWay bool) (transform.Spec, error) {
	return typed.Group[secondsGroup, dateGroup]{
		Name: "events", Revision: "1", OneWay: oneWay,
		Up: func(old secondsGroup, _ dateGroup) (dateGroup, error) {
			return dateGroup{&dateDoc{Date: time.Unix(old.Event.At, 0)}}, nil
		},
		Down: func(new dateGroup, _ secondsGroup) (secondsGroup, error) {
			return secondsGroup{&secondsDoc{At: new.Event.Date.Unix()}}, nil
		},
	}.Spec()
}

// TestOverflowIsNotStored: the engine converts the result of a function back before it stores it.
func TestOverflowIsNotStored(t *testing.T) {
	t.Parallel()
	for _, oneWay := range []bool{false, true} {
		s, err := eventGroup(oneWay)
		if err != nil {
			t.Fatal(err)
		}
		up, _ := directions(t, s)
		take := func(at int64) error {
			_, err := put(t, up, []record.Record{rec(t, "seconds", bson.D{{Key: "_id", Value: "e"}, {Key: "at", Value: at}})}, nil)
			return err
		}
		if err := take(1_700_000_000); err != nil {
			t.Error(err)
		}
		err = take(math.MaxInt64 / 1000 * 2)
		switch {
		case oneWay && err != nil:
			t.Errorf("one-way: %v", err)
		case !oneWay && (err == nil || !strings.Contains(err.Error(), "seconds e would have another at")):
			t.Errorf("an overflow gives %v", err)
		}
	}
}
