// Package appclient is for an existing application that accesses its MongoDB collections directly.
// A switch makes another version of the data active, in other collections. The package holds the
// application's writes during the switch and then runs them at the new place. A rollback is a
// switch back, and works the same way.
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
// An App registers with the controllers, which migrate the data. A switch therefore waits for it.
// At their request the App holds its writes, and acknowledges when none is in flight. After the
// switch it continues at the new place. Close deregisters it. Any controller will do; if one does
// not answer, the App asks another. It waits for news at two controllers at once, so that one that
// stands still hides no switch. docs/application.md describes the protocol.
//
// # Guarantees
//
//   - The App repeats a write only if the database refused it as a whole. The outcome is unknown
//     after a broken connection, after a refused write of many documents, and after a refusal in a
//     callback that had already written. The error is then ErrUnknownOutcome.
//   - The App reads and writes only in a cluster where a collection has the UUID that the controllers
//     give. So a client of another cluster creates nothing there. Older controllers give no UUID.
//   - During a switch, reads go to the old version until the new one is open.
//   - Without controllers the application continues at the last known place. If the data has moved,
//     the database refuses the write, and the write then waits for a controller. Some clusters
//     cannot refuse every write: with the fence class validator, deletes pass.
//
// # What this package does not own
//
// The package does not own MongoDB clients and does not transform documents. The application reads
// and writes documents of the version that a Place names.
//
// # Where to begin
//
// Begin to read at Open, App.Write and App.Read.
package appclient
