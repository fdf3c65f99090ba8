package proxy

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/names"
)

// lookForViews finds the views at home that read collections that move. After a switch they would go on
// answering with the data of the former place.
func (p *Proxy) lookForViews(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, viewsTimeout)
	defer cancel()
	p.views = map[string]string{}
	for _, d := range p.deployed {
		if err := p.viewsOf(ctx, d.cfg.Database); err != nil {
			return fmt.Errorf("look for views of database %s over collections that move: %w", d.cfg.Database, err)
		}
	}
	return nil
}

// viewsTimeout bounds the look for views, also while the home cluster elects a primary.
const viewsTimeout = 30 * time.Second

func (p *Proxy) viewsOf(ctx context.Context, database string) error {
	found, err := p.home.Client().Database(database).RunCommandCursor(ctx, bson.D{
		{Key: "listCollections", Value: 1}, {Key: "filter", Value: bson.D{{Key: "type", Value: "view"}}},
	})
	if err != nil {
		return err
	}
	var views []struct {
		Name    string   `bson:"name"`
		Options bson.Raw `bson:"options"`
	}
	if err := found.All(ctx, &views); err != nil {
		return err
	}
	// A view can read another view, which comes in any order.
	for more := true; more; {
		more = false
		for _, v := range views {
			ns := database + "." + v.Name
			// Behind the names that move there are views of fences.
			if p.views[ns] != "" || p.deployment(command{database: database, collection: v.Name}) != nil {
				continue
			}
			if on := p.reads(database, bsoncore.Document(v.Options)); on != "" {
				p.views[ns], more = on, true
			}
		}
	}
	return nil
}

// reads returns a collection that moves and that a view with these options reads; empty: it reads none.
func (p *Proxy) reads(database string, options bsoncore.Document) string {
	on, _ := text(options, "viewOn")
	sources := append(names.Stages(database, options), names.Stage{Database: database, Collection: on})
	for _, s := range sources {
		if p.deployment(command{database: s.Database, collection: s.Collection}) != nil {
			return s.Database + "." + s.Collection
		}
		if other := p.views[s.Database+"."+s.Collection]; other != "" {
			return other
		}
	}
	return ""
}
