package appclient_test

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
)

// shop is an application that keeps orders.
type shop struct{ app *appclient.App }

func openShop(ctx context.Context, client *mongo.Client, controllers []string) (*shop, error) {
	app, err := appclient.Open(ctx, appclient.Config{Controllers: controllers, Application: "shop", Mongo: client})
	return &shop{app}, err // and app.Close(ctx) when the process ends
}

func (s *shop) place(ctx context.Context, o order) error {
	return s.app.Write(ctx, func(ctx context.Context, at appclient.Place) error {
		orders, err := at.Collection("orders")
		if err == nil {
			_, err = orders.InsertOne(ctx, o.in(at.Version))
		}
		return err
	})
}

// order is one, in whichever form a version has.
type order struct{ id, state string }

func (o order) in(version string) bson.M {
	if version == "v1" {
		return bson.M{"_id": o.id, "state": o.state}
	}
	return bson.M{"_id": o.id, "status": o.state}
}

func Example() {
	ctx := context.Background()
	client, err := mongo.Connect()
	if err != nil {
		return
	}
	s, err := openShop(ctx, client, []string{"10.0.0.1:7090", "10.0.0.2:7090"})
	if err != nil {
		return // no controller can be reached
	}
	if err := s.place(ctx, order{"7", "paid"}); err != nil {
		return
	}
	_ = s.app.Close(ctx)
}

// A caller decides by the error of Write or Transact whether it may repeat the call.
func Example_errors() {
	next := func(err error) string {
		switch {
		case err == nil:
			return "done"
		case errors.Is(err, appclient.ErrNotWritten):
			return "call again later"
		case errors.Is(err, appclient.ErrUnknownOutcome):
			return "read the order first"
		default:
			return "give up"
		}
	}
	fmt.Println(next(fmt.Errorf("place order 7: %w", appclient.ErrNotWritten)))
	fmt.Println(next(fmt.Errorf("place order 7: %w", appclient.ErrUnknownOutcome)))
	// Output:
	// call again later
	// read the order first
}

func ExampleApp_Write() {
	ctx := context.Background()
	client, err := mongo.Connect()
	if err != nil {
		return
	}
	orderOf := func(version string) bson.M { return order{"7", "paid"}.in(version) }
	write := func() error {
		app, err := appclient.Open(ctx, appclient.Config{
			Controllers: []string{"10.0.0.1:7090", "10.0.0.2:7090"}, Application: "web", Mongo: client,
		})
		if err != nil {
			return err
		}
		err = app.Write(ctx, func(ctx context.Context, at appclient.Place) error {
			orders, err := at.Collection("orders")
			if err == nil {
				_, err = orders.InsertOne(ctx, orderOf(at.Version))
			}
			return err
		})
		return errors.Join(err, app.Close(ctx))
	}
	_ = write()
}
