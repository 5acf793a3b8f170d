// Package clouds has tests of locks on emulators of Azure Blob Storage, Google Cloud Storage and DynamoDB
// (Azurite, fake-gcs-server and dynalite), outside the module graph of fencelock's users.
// FENCELOCK_CLOUDS is the directory with their programs.
package clouds
