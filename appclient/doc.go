// Package appclient is for an existing application that reaches its collections directly: it
// follows where they are through switches, there and back.
//
//	app, err := appclient.Open(ctx, appclient.Config{
//		Controllers: []string{"10.0.0.1:7090", "10.0.0.2:7090"}, Application: "web", Mongo: client,
//	})
//	if err != nil {
//		return err
//	}
//	err = app.Write(ctx, func(ctx context.Context, at appclient.Place) error {
//		orders, err := at.Collection("orders")
//		if err == nil {
//			_, err = orders.InsertOne(ctx, orderOf(at.Version))
//		}
//		return err
//	})
//	return errors.Join(err, app.Close(ctx))
//
// An App registers with the controllers, so that a switch waits for it; holds its writes when
// told to, says so when none is in flight, and goes on where the data is then; and
// deregisters. Any of the controllers will do, and others are asked when one does not answer.
// docs/application.md is the protocol that it speaks.
//
// What it guarantees:
//
//   - A write is run again only if the database refused it as a whole. What became of one that
//     broke off is not known, nor of one of many documents that was refused, nor of several
//     operations of which one had written, and that is an error of its own: ErrUnknownOutcome.
//   - Reads go to the version that was open last until the next one is.
//   - Without controllers the application goes on where the data was. What has moved
//     meanwhile is refused by the database, as far as its fence class goes; the refused write
//     waits for a controller.
//
// It does not own MongoDB clients, nor does it transform anything: the application reads and
// writes documents of the version that a Place names.
package appclient
