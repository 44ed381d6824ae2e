# Filled by the installation work.
